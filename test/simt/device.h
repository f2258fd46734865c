#pragma once
// The interfaces between the parts of the shim: simt.cpp runs kernels, memory.cpp manages device memory, streams.cpp
// has streams, events and graphs, runtime.cpp the other functions of the runtime.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>

namespace simt {

/// Prints "simt: …" with the running kernel and its block, and aborts.
[[noreturn]] __attribute__((format(printf, 1, 2))) void die(const char* format, ...);

/// The mangled name of the function at an address, "?" if this program's symbol table has none.
const char* symbol_of(const void* function);

/// A kernel, copy or fill, as a profiler lists it.
struct Activity {
  enum Kind { kNone, kKernel, kCopy, kFill } kind = kNone;
  const void* kernel = nullptr;  // its address; nullptr for what stands for a library's kernels
  const char* name = nullptr;    // of that library's function
  size_t bytes = 0;              // that are copied or filled
  cudaMemcpyKind direction = cudaMemcpyDefault;
};
/// What the stand-in for CUPTI (cupti.cpp) is told of while it records; calls are serialized.
class Tracer {
 public:
  /// A call of the runtime queues an activity. Returns work that does the same as `work`, and reports when it has run.
  virtual std::function<void()> queued(const Activity& activity, cudaStream_t stream, std::function<void()> work) = 0;
  /// A function of the runtime that blocks has been called at `begin`, by time(), and returns now.
  virtual void blocked(const char* function, uint64_t begin) = 0;
  virtual uint64_t time() = 0;  ///< Is in nanoseconds.

 protected:
  ~Tracer() = default;
};
extern Tracer* tracer;  // nullptr while nothing is recorded
/// While it lives, a function of the runtime blocks.
class Blocking {
 public:
  explicit Blocking(const char* function);
  ~Blocking();
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

 private:
  const char* const function_;
  const uint64_t begin_;
};

/// Whether a kernel is running.
bool in_kernel();

inline constexpr size_t kMaxShared = 227 << 10;  // bytes of shared memory that a block may have
/// The static shared memory of a kernel, as far as it has been written to when it ran: 0 before its first run, and
/// under AddressSanitizer.
size_t static_shared(const void* kernel);

/// SIMT_SEED. 0: everything in order and as late as allowed. 1: backwards, and as early as allowed. Others: shuffled.
unsigned seed();
/// A random number below `limit`, from a sequence that the seed determines.
unsigned draw(unsigned limit);

/// The number of GPUs: SIMT_DEVICES, or two.
int device_count();
/// A set of devices, a bit for each.
using Devices = unsigned;
inline constexpr Devices kAllDevices = ~0u;
inline Devices only(int device) { return 1u << device; }

/// While it lives, the memory of these devices, and of no others, is accessible.
class Open {
 public:
  explicit Open(Devices devices);
  ~Open();
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

 private:
  Devices before_;
};
/// The devices whose memory is accessible.
Devices opened();
/// Changes that set until the innermost Open ends.
void reopen(Devices devices);

/// A block of device memory. It may be accessed between prepare() and retire(), which run in stream order.
struct MemoryBlock {
  char* data;
  size_t size;
  int device;
  bool ready = false;  // prepare() has run
  bool freed = false;  // by the host; the stream has not run the free yet
  bool of_graph = false;
  cudaMemPool_t pool = nullptr;
};
/// Null if there are no addresses left.
MemoryBlock* allocate(size_t size, int device);
/// The block that contains [address, address + bytes), or null.
MemoryBlock* find_block(const void* address, size_t bytes = 1);
bool is_device(const void* address);
/// Fills a new block with 0xff.
void prepare(MemoryBlock* block);
/// Checks the block's borders and fills it with 0xff. It may not be accessed until prepare() runs again.
void rest(MemoryBlock* block);
/// The same, and frees its addresses.
void retire(MemoryBlock* block);
/// Aborts if memory next to a block was written.
void check_borders();
/// Aborts if recently freed memory was written.
void check_freed();

/// While it lives, the host's tensors are not accessible, if SIMT_HOST=closed says so (host.cpp).
class HostClosed {
 public:
  HostClosed();
  ~HostClosed();
  HostClosed(const HostClosed&) = delete;
  HostClosed& operator=(const HostClosed&) = delete;
};
/// Whether the address is among those.
bool is_closed_host(const void* address);

/// Sets the memory of each GPU. The default is SIMT_MEMORY, in bytes, or 8 GiB.
void limit_memory(size_t bytes);

}  // namespace simt
