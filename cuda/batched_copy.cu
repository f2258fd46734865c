#include <algorithm>
#include <bit>

#include "cuda/block.h"
#include "cuda/kernels.h"
#include "cuda/strided.h"
#include "lib/kernels/copy.h"

// Many copies by one launch, for cat, stack and packed sequences: their parts are often a few hundred bytes each, which
// take less time to copy than a launch of their own would.
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

/// The copies of a launch; each has a range of the launch's blocks.
template <class T>
struct CopyTable {
  Part<T> parts[kMaxCopies];
  int first_block[kMaxCopies];
  int count = 0;
};

template <class T>
__global__ void copy_blocks_kernel(CopyTable<T> table) {
  const int which = part_of_block(table.first_block, table.count);
  const Part<T>& part = table.parts[which];
  const int64_t begin = (int64_t(blockIdx.x) - table.first_block[which]) * kItemsPerBlock;
  const int64_t rest = part.count - begin, end = begin + (rest < kItemsPerBlock ? rest : kItemsPerBlock);
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
    const int64_t row = part.length == part.count ? 0 : divide(i, part.length), column = i - row * part.length;
    part.to[row * part.to_step + column] = part.from[row * part.from_step + column];
  }
}

template <class T>
void copy_parts(std::span<const BlockCopy> blocks) {
  constexpr int64_t size = sizeof(T);
  CopyTable<T> table;
  int64_t grid = 0;
  for (const BlockCopy& block : blocks) {
    if (block.rows == 0 || block.bytes == 0) continue;
    const int64_t count = block.rows * block.bytes / size;
    table.parts[table.count] = {static_cast<const T*>(block.from),
                                static_cast<T*>(block.to),
                                count,
                                block.bytes / size,
                                block.from_step / size,
                                block.to_step / size};
    table.first_block[table.count++] = static_cast<int>(grid);
    grid += ceil_div(count, kItemsPerBlock);
  }
  launch(copy_blocks_kernel<T>, static_cast<unsigned>(grid), kThreads, 0, table);
}

struct alignas(16) Word16 {
  uint64_t halves[2];
};

void copy_blocks(std::span<const BlockCopy> blocks) {
  for (; blocks.size() > kMaxCopies; blocks = blocks.subspan(kMaxCopies)) copy_blocks(blocks.first(kMaxCopies));
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
