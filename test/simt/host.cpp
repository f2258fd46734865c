// The host's tensors, out of reach of kernels: a GPU cannot read what malloc gives, and kernels that run on the CPU
// could. With SIMT_HOST=closed, and without AddressSanitizer, whose allocator this would replace.
//
// The library's allocator gets memory by aligned_alloc: here, from one range of addresses, which is closed while a
// kernel runs. For programs in which no other thread reads tensors meanwhile.
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string_view>

#include "device.h"
#include "simt.h"

#ifdef REEL_ADDRESS_SANITIZER
namespace simt {
HostClosed::HostClosed() = default;
HostClosed::~HostClosed() = default;
bool is_closed_host(const void*) { return false; }
}  // namespace simt
#else

namespace simt {
namespace {

constexpr size_t kRange = size_t(64) << 30, kPage = 4096;

struct Host {
  char* begin = nullptr;  // null: nothing is closed
  std::atomic<char*> top;
  std::multimap<size_t, char*> free;
  std::map<char*, size_t> used;
  std::mutex mutex;
  Host() {
    const char* const wish = std::getenv("SIMT_HOST");
    if (!wish || std::string_view(wish) != "closed") return;
    void* const range =
        mmap(nullptr, kRange, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) die("no address space for the host's tensors");
    top = begin = static_cast<char*>(range);
  }
  bool has(const void* address) const { return begin && address >= begin && address < begin + kRange; }
};
Host& host() {
  static Host& instance = *new Host;  // never destroyed: others free memory later
  return instance;
}

void protect(int access) {
  Host& h = host();
  if (h.begin && h.top != h.begin && mprotect(h.begin, static_cast<size_t>(h.top - h.begin), access) != 0)
    die("mprotect failed");
}

}  // namespace

HostClosed::HostClosed() { protect(PROT_NONE); }
HostClosed::~HostClosed() { protect(PROT_READ | PROT_WRITE); }
bool is_closed_host(const void* address) { return host().has(address); }

}  // namespace simt

extern "C" {

void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* address);

void* aligned_alloc(size_t alignment, size_t size) {
  simt::Host& h = simt::host();
  if (!h.begin || alignment > simt::kPage) return __libc_memalign(alignment, size);
  const std::lock_guard lock(h.mutex);
  size = (size + simt::kPage - 1) / simt::kPage * simt::kPage;
  char* address;
  if (const auto found = h.free.find(size); found != h.free.end()) {
    address = found->second;
    h.free.erase(found);
  } else {
    if (size > simt::kRange - static_cast<size_t>(h.top - h.begin)) return errno = ENOMEM, nullptr;
    address = h.top;
    h.top = address + size;
  }
  h.used[address] = size;
  return address;
}

void free(void* address) {
  simt::Host& h = simt::host();
  if (!h.has(address)) return __libc_free(address);
  const std::lock_guard lock(h.mutex);
  const auto found = h.used.find(static_cast<char*>(address));
  madvise(address, found->second, MADV_DONTNEED);
  h.free.emplace(found->second, found->first);
  h.used.erase(found);
}

}  // extern "C"
#endif
