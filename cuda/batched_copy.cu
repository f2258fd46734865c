#include <algorithm>
#include <bit>

#include "cuda/aligned_vector.h"
#include "cuda/block.h"
#include "cuda/kernels.h"
#include "cuda/strided.h"
#include "lib/device/kernels/copy.h"

// Many copies by one launch, for cat, stack and packed sequences: their parts are often a few hundred bytes each, which
// take less time to copy than a launch of their own would. And many conversions, for autocast's parameters.
namespace reel::cuda {
namespace {

constexpr int kMaxCopies = 64;  // of a launch: their descriptions are a kernel argument, of which there are 4 KiB
constexpr int kItemsPerBlock = 8 * kThreads;

/// A BlockCopy in elements of type T.
template <class T>
struct Part {
  const T* from;
  T* to;
  int64_t count, length, from_step, to_step;  // in all; of a row; from row to row
};
/// One that converts.
template <class From, class To>
struct Conversion {
  const From* from;
  To* to;
  int64_t count;
};

/// One that adds elements of `addend`, which may be nullptr: those of `to` may be those of `from`.
template <class T>
struct Sum {
  const T *from, *addend;
  T* to;
  int64_t count;
};

/// The copies of a launch; each has a range of the launch's blocks.
template <class P>
struct CopyTable {
  P parts[kMaxCopies];
  int first_block[kMaxCopies];
  int count = 0;
  int64_t blocks = 0;  // of the launch

  void add(const P& part) {
    parts[count] = part;
    first_block[count++] = static_cast<int>(blocks);
    blocks += ceil_div(part.count, kItemsPerBlock);
  }
};
/// The elements of a part that the calling block has.
template <class P>
struct Share {
  const P& part;
  int64_t begin, end;
  __device__ explicit Share(const CopyTable<P>& table) : Share(table, part_of_block(table.first_block, table.count)) {}

 private:
  __device__ Share(const CopyTable<P>& table, int which)
      : part(table.parts[which]), begin((int64_t(blockIdx.x) - table.first_block[which]) * kItemsPerBlock) {
    const int64_t rest = part.count - begin;
    end = begin + (rest < kItemsPerBlock ? rest : kItemsPerBlock);
  }
};

template <class T>
__global__ void copy_blocks_kernel(CopyTable<Part<T>> table) {
  const Share share(table);
  const Part<T>& part = share.part;
  for (int64_t i = share.begin + threadIdx.x; i < share.end; i += blockDim.x) {
    const int64_t row = part.length == part.count ? 0 : divide(i, part.length), column = i - row * part.length;
    part.to[row * part.to_step + column] = part.from[row * part.from_step + column];
  }
}

/// 16 bytes of the half type at a time.
template <class From, class To>
__global__ void convert_blocks_kernel(CopyTable<Conversion<From, To>> table) {
  constexpr int kPack = 8;
  static_assert(kItemsPerBlock % kPack == 0);
  const Share share(table);
  const From* const from = share.part.from;
  To* const to = share.part.to;
  int64_t i = share.begin + int64_t(threadIdx.x) * kPack;
  if (is_aligned(from) && is_aligned(to)) {
    for (; i + kPack <= share.end; i += int64_t(blockDim.x) * kPack) {
      const auto pack = *reinterpret_cast<const AlignedVector<From, kPack>*>(from + i);
      AlignedVector<To, kPack> converted;
      for (int k = 0; k < kPack; ++k) converted.items[k] = narrow<To>(widen(pack.items[k]));
      store_vector(to + i, converted);
    }
  }
  for (; i < share.end; i += int64_t(blockDim.x) * kPack)
    for (int64_t k = i; k < i + kPack && k < share.end; ++k) to[k] = narrow<To>(widen(from[k]));
}

template <class T>
__global__ void sum_blocks_kernel(CopyTable<Sum<T>> table) {
  const Share share(table);
  const Sum<T>& part = share.part;
  for (int64_t i = share.begin + threadIdx.x; i < share.end; i += blockDim.x)
    part.to[i] = part.addend ? narrow<T>(widen(part.from[i]) + widen(part.addend[i])) : part.from[i];
}

template <class T>
void copy_parts(std::span<const BlockCopy> blocks) {
  constexpr int64_t size = sizeof(T);
  CopyTable<Part<T>> table;
  for (const BlockCopy& block : blocks)
    if (block.rows != 0 && block.bytes != 0)
      table.add({static_cast<const T*>(block.from), static_cast<T*>(block.to), block.rows * block.bytes / size,
                 block.bytes / size, block.from_step / size, block.to_step / size});
  launch(copy_blocks_kernel<T>, static_cast<unsigned>(table.blocks), kThreads, 0, table);
}
template <class From, class To>
void convert_parts(std::span<const BlockCopy> blocks) {
  CopyTable<Conversion<From, To>> table;
  for (const BlockCopy& block : blocks)
    if (block.bytes != 0)
      table.add({static_cast<const From*>(block.from), static_cast<To*>(block.to),
                 block.bytes / static_cast<int64_t>(sizeof(From))});
  launch(convert_blocks_kernel<From, To>, static_cast<unsigned>(table.blocks), kThreads, 0, table);
}
void convert(std::span<const BlockCopy> blocks) {
  const bool widens = blocks[0].to_type == kFloat32;
  if ((widens ? blocks[0].from_type : blocks[0].to_type) == kFloat16)
    widens ? convert_parts<__half, float>(blocks) : convert_parts<float, __half>(blocks);
  else
    widens ? convert_parts<__nv_bfloat16, float>(blocks) : convert_parts<float, __nv_bfloat16>(blocks);
}

void sum(std::span<const BlockCopy> blocks) {
  with_floating(blocks[0].from_type, [&](auto type) {
    using T = typename decltype(type)::type;
    CopyTable<Sum<T>> table;
    for (const BlockCopy& block : blocks)
      if (block.bytes != 0)
        table.add({static_cast<const T*>(block.from), static_cast<const T*>(block.addend), static_cast<T*>(block.to),
                   block.bytes / static_cast<int64_t>(sizeof(T))});
    launch(sum_blocks_kernel<T>, static_cast<unsigned>(table.blocks), kThreads, 0, table);
  });
}

struct alignas(16) Word16 {
  uint64_t halves[2];
};

void copy_blocks(std::span<const BlockCopy> blocks) {
  for (; blocks.size() > kMaxCopies; blocks = blocks.subspan(kMaxCopies)) copy_blocks(blocks.first(kMaxCopies));
  if (!blocks.empty() && blocks[0].from_type != blocks[0].to_type) return convert(blocks);
  if (std::any_of(blocks.begin(), blocks.end(), [](const BlockCopy& block) { return block.addend; }))
    return sum(blocks);
  uint64_t all = 0;  // a power of two divides it if it divides every address and size
  for (const BlockCopy& block : blocks) {
    all |= reinterpret_cast<uintptr_t>(block.from) | reinterpret_cast<uintptr_t>(block.to);
    all |= static_cast<uint64_t>(block.bytes);
    if (block.rows > 1) all |= static_cast<uint64_t>(block.from_step) | static_cast<uint64_t>(block.to_step);
  }
  switch (std::min(std::countr_zero(all), 4)) {
    case 0: return copy_parts<uint8_t>(blocks);
    case 1: return copy_parts<uint16_t>(blocks);
    case 2: return copy_parts<uint32_t>(blocks);
    case 3: return copy_parts<uint64_t>(blocks);
    default: return copy_parts<Word16>(blocks);
  }
}

}  // namespace

void install_blocks(KernelTable& table) { table.copy_blocks = copy_blocks; }

}  // namespace reel::cuda
