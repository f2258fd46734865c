#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "cuda/aligned_vector.h"
#include "cuda/block.h"
#include "cuda/kernels.h"
#include "cuda/pinned_scratch.h"
#include "cuda/strided.h"
#include "lib/device/kernels/copy.h"

// Many copies by one launch, for cat, stack and packed sequences: their parts are often a few hundred bytes each, which
// take less time to copy than a launch of their own would. And many conversions, for autocast's parameters.
namespace reel::cuda {
namespace {

constexpr int kItemsPerBlock = 8 * kThreads;

/// A Part is a BlockCopy in elements of type T.
template <class T>
struct Part {
  const T* from;
  T* to;
  int64_t count, length, from_step, to_step;  // in all; of a row; from row to row

  static Part of(const BlockCopy& copy) {
    constexpr int64_t size = sizeof(T);
    return {static_cast<const T*>(copy.from),
            static_cast<T*>(copy.to),
            copy.rows * copy.bytes / size,
            copy.bytes / size,
            copy.from_step / size,
            copy.to_step / size};
  }
  /// Copies elements `begin` to `end`, by the threads of a block.
  __device__ void run(int64_t begin, int64_t end) const {
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
      const int64_t row = length == count ? 0 : divide(i, length), column = i - row * length;
      to[row * to_step + column] = from[row * from_step + column];
    }
  }
};
/// A Conversion is a BlockCopy that converts.
template <class From, class To>
struct Conversion {
  const From* from;
  To* to;
  int64_t count;

  static Conversion of(const BlockCopy& copy) {
    return {static_cast<const From*>(copy.from), static_cast<To*>(copy.to),
            copy.bytes / static_cast<int64_t>(sizeof(From))};
  }
  /// Converts 16 bytes of the half type at a time.
  __device__ void run(int64_t begin, int64_t end) const {
    constexpr int kPack = 8;
    static_assert(kItemsPerBlock % kPack == 0);
    int64_t i = begin + int64_t(threadIdx.x) * kPack;
    if (is_aligned(from) && is_aligned(to)) {
      for (; i + kPack <= end; i += int64_t(blockDim.x) * kPack) {
        const auto pack = *reinterpret_cast<const AlignedVector<From, kPack>*>(from + i);
        AlignedVector<To, kPack> converted;
        for (int k = 0; k < kPack; ++k) converted.items[k] = narrow<To>(widen(pack.items[k]));
        store_vector(to + i, converted);
      }
    }
    for (; i < end; i += int64_t(blockDim.x) * kPack)
      for (int64_t k = i; k < i + kPack && k < end; ++k) to[k] = narrow<To>(widen(from[k]));
  }
};

/// A Sum is a BlockCopy that adds the elements of `addend`, if any. Those of `to` may be those of `from`.
template <class T>
struct Sum {
  const T *from, *addend;
  T* to;
  int64_t count;

  static Sum of(const BlockCopy& copy) {
    return {static_cast<const T*>(copy.from), static_cast<const T*>(copy.addend), static_cast<T*>(copy.to),
            copy.bytes / static_cast<int64_t>(sizeof(T))};
  }
  __device__ void run(int64_t begin, int64_t end) const {
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
      to[i] = addend ? narrow<T>(widen(from[i]) + widen(addend[i])) : from[i];
  }
};

// ---- launches -------------------------------------------------------------------------------------------------------

/// A CopyList has the copies of a launch in GPU memory. Each copy has a range of the launch's blocks.
template <class P>
struct CopyList {
  const P* parts;
  const int* first_block;
  int count;
  __device__ const CopyList& list() const { return *this; }
};
/// A CopyTable has them in a kernel's argument.
template <class P, int capacity>
struct CopyTable {
  P parts[capacity];
  int first_block[capacity];
  int count;
  __device__ CopyList<P> list() const { return {parts, first_block, count}; }
};

template <class Copies>
__global__ void copy_blocks_kernel(const __grid_constant__ Copies copies) {
  const auto list = copies.list();
  const int which = part_of_block(list.first_block, list.count);
  const int64_t begin = (int64_t(blockIdx.x) - list.first_block[which]) * kItemsPerBlock;
  const int64_t rest = list.parts[which].count - begin;
  list.parts[which].run(begin, begin + (rest < kItemsPerBlock ? rest : kItemsPerBlock));
}

/// Lists the copies that have bytes; returns how many blocks they have.
template <class P>
unsigned list_copies(std::span<const BlockCopy> copies, P* parts, int* first_block, int* count) {
  int64_t blocks = 0;
  *count = 0;
  for (const BlockCopy& copy : copies) {
    if (copy.rows == 0 || copy.bytes == 0) continue;
    const P part = parts[*count] = P::of(copy);
    first_block[(*count)++] = static_cast<int>(blocks);
    blocks += ceil_div(part.count, kItemsPerBlock);
  }
  return static_cast<unsigned>(blocks);
}

template <class P, int capacity>
void run_by_argument(std::span<const BlockCopy> copies) {
  CopyTable<P, capacity> table;
  const unsigned blocks = list_copies(copies, table.parts, table.first_block, &table.count);
  launch(copy_blocks_kernel<CopyTable<P, capacity>>, blocks, kThreads, 0, table);
}
template <class P>
void run_by_memory(std::span<const BlockCopy> copies) {
  const size_t bytes = copies.size() * (sizeof(P) + sizeof(int));
  const PinnedScratch described(bytes);
  const Scratch<char> there(static_cast<int64_t>(bytes));
  const auto places = [&](char* memory) {
    auto* const parts = reinterpret_cast<P*>(memory);
    return std::pair(parts, reinterpret_cast<int*>(parts + copies.size()));
  };
  const auto [parts, first_block] = places(static_cast<char*>(described.data()));
  CopyList<P> list;
  const unsigned blocks = list_copies(copies, parts, first_block, &list.count);
  if (blocks == 0) return;
  described.copy_to(there, bytes);
  std::tie(list.parts, list.first_block) = places(there);
  launch(copy_blocks_kernel<CopyList<P>>, blocks, kThreads, 0, list);
}

constexpr size_t kMaxArguments = 512;  // of a launch, whose arguments may have 32,764 bytes since CUDA 12.1
/// Makes the copies by one launch. Its argument describes them, and has not much more room than they need. Where they
/// are more than it can hold, the descriptions go to memory. A capture makes several launches instead, since its
/// replays would need that memory, and the pinned one that it is copied from.
template <class P>
void run(std::span<const BlockCopy> copies) {
  for (; capturing() && copies.size() > kMaxArguments; copies = copies.subspan(kMaxArguments))
    run_by_argument<P, kMaxArguments>(copies.first(kMaxArguments));
  if (copies.size() <= 16)
    run_by_argument<P, 16>(copies);
  else if (copies.size() <= 128)
    run_by_argument<P, 128>(copies);
  else if (copies.size() <= kMaxArguments)
    run_by_argument<P, kMaxArguments>(copies);
  else
    run_by_memory<P>(copies);
}

void convert(std::span<const BlockCopy> blocks) {
  const bool widens = blocks[0].to_type == kFloat32;
  if ((widens ? blocks[0].from_type : blocks[0].to_type) == kFloat16)
    widens ? run<Conversion<__half, float>>(blocks) : run<Conversion<float, __half>>(blocks);
  else
    widens ? run<Conversion<__nv_bfloat16, float>>(blocks) : run<Conversion<float, __nv_bfloat16>>(blocks);
}

void sum(std::span<const BlockCopy> blocks) {
  with_floating(blocks[0].from_type, [&](auto type) { run<Sum<typename decltype(type)::type>>(blocks); });
}

struct alignas(16) Word16 {
  uint64_t halves[2];
};

void copy_blocks(std::span<const BlockCopy> blocks) {
  if (refreshing) return;
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
    case 0: return run<Part<uint8_t>>(blocks);
    case 1: return run<Part<uint16_t>>(blocks);
    case 2: return run<Part<uint32_t>>(blocks);
    case 3: return run<Part<uint64_t>>(blocks);
    default: return run<Part<Word16>>(blocks);
  }
}

}  // namespace

void install_blocks(KernelTable& table) { table.copy_blocks = copy_blocks; }

}  // namespace reel::cuda
