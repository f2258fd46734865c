#pragma once
// What the parts of the shim know of each other. simt.cpp runs kernels, memory.cpp keeps the GPU's memory,
// streams.cpp has streams, events and graphs,
// runtime.cpp the rest of the runtime's functions.
#include <cuda_runtime.h>

#include <cstddef>

namespace simt {

/// Prints "simt: …" with the kernel and the block that run, and aborts.
[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char* format, ...);

/// SIMT_SEED. 0: everything in order and as late as allowed. 1: backwards, and as early as allowed. Others: shuffled.
unsigned seed();
/// A number below `limit` of a series that the seed starts.
unsigned draw(unsigned limit);

/// How many GPUs there are: SIMT_DEVICES, or else two.
int device_count();
/// One for each device.
using Devices = unsigned;
inline constexpr Devices kAllDevices = ~0u;
inline Devices only(int device) { return 1u << device; }

/// While one lives the memory of these devices, and of no others, can be read and written.
class Open {
 public:
  explicit Open(Devices devices);
  ~Open();
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

 private:
  Devices before_;
};
/// Those whose memory can be.
Devices opened();
/// Changes them until the innermost Open goes.
void reopen(Devices devices);

/// A block of a GPU's memory. Nobody may touch it before prepare() and after retire(), which the stream calls.
struct Block {
  char* data;
  size_t size;
  int device;
  bool ready = false;  // prepare() has been
  bool freed = false;  // the host has asked for it; the stream has yet to come there
  bool of_graph = false;
  cudaMemPool_t pool = nullptr;
};
/// Null if there are no addresses left.
Block* allocate(size_t size, int device);
/// The block which `bytes` bytes from `address` on lie in, or null.
Block* find_block(const void* address, size_t bytes = 1);
bool is_device(const void* address);
/// Fills a new block with 0xff.
void prepare(Block* block);
/// Checks the block's borders and fills it with 0xff. Nobody may touch it until prepare() is called again.
void rest(Block* block);
/// … and gives its addresses back.
void retire(Block* block);
/// Aborts if something was written next to a block.
void check_borders();
/// … or into what was freed not long ago.
void check_freed();

/// Lets each GPU have so much memory. SIMT_MEMORY says it, too, in bytes; otherwise it has 8 GiB.
void limit_memory(size_t bytes);

}  // namespace simt
