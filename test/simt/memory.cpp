// The memory of the GPUs: a range of addresses for each, protected (mprotect) from the host and from the kernels of
// other GPUs.
//
// Every memory block has borders that are checked after each piece of work. Under AddressSanitizer they are poisoned
// instead, which detects reads, too. Free memory is poisoned under AddressSanitizer and filled with NaN without.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <string>

#include "device.h"
#include "simt.h"

#ifdef REEL_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(start, size) ((void)(start), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(start, size) ((void)(start), (void)(size))
#endif

namespace simt {
namespace {

constexpr size_t kBorder = 256, kArena = size_t(64) << 30, kPage = size_t(2) << 20;
constexpr size_t kQuarantine = size_t(16) << 20;  // freed bytes that are kept before their addresses are reused
constexpr unsigned char kCanary = 0xcb;

constexpr int kMaxDevices = 8;

char* arenas() {
  static char* const start = [] {
    const size_t size = kArena * static_cast<size_t>(device_count());
    void* const found = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) die("no address space for the memory of the GPU");
    madvise(found, size, MADV_HUGEPAGE);
    return static_cast<char*>(found);
  }();
  return start;
}
char* arena(int device) { return arenas() + kArena * static_cast<size_t>(device); }
int device_of(const char* address) { return static_cast<int>(static_cast<size_t>(address - arenas()) / kArena); }

struct Memory {
  std::map<char*, MemoryBlock> blocks;
  std::map<char*, size_t> free;  // ranges below the tops; those of two devices do not touch
  std::deque<MemoryBlock> quarantine;
  size_t quarantined = 0;
  char* tops[kMaxDevices];  // nothing above has ever been used
  Devices open = 0;
  Memory() {
    for (int device = 0; device < device_count(); ++device) tops[device] = arena(device);
  }
};
Memory& memory() {
  static Memory& instance = *new Memory;
  return instance;
}

size_t footprint(size_t size) { return kBorder + (size + kBorder + kBorder - 1) / kBorder * kBorder; }

// ---- faults ---------------------------------------------------------------------------------------------------------

struct sigaction other_handler;

/// A handler of SIGSEGV: prints which memory was accessed, then restores the previous handler, which gets the fault as
/// the access is repeated.
void explain(int, siginfo_t* fault, void*) {
  const char* const address = static_cast<const char*>(fault->si_addr);
  sigaction(SIGSEGV, &other_handler, nullptr);
  if (fault->si_code <= 0) return;  // sent by kill(), not a fault
  char text[200];
  int length = 0;
  if (is_closed_host(address)) {
    length = std::snprintf(text, sizeof text, "simt: a kernel touches memory of a tensor on the host\n");
  } else if (!is_device(address)) {
    if (memory().open) length = std::snprintf(text, sizeof text, "simt: a kernel touches %p\n", fault->si_addr);
  } else if (const MemoryBlock* const block = find_block(address)) {
    length = std::snprintf(text, sizeof text, "simt: %s touches byte %td of a block of %zu bytes of device %d\n",
                           memory().open ? "a kernel of another device" : "the host", address - block->data,
                           block->size, block->device);
  } else {
    length = std::snprintf(text, sizeof text, "simt: %s touches the GPU's memory outside of all blocks\n",
                           memory().open ? "a kernel" : "the host");
  }
  if (length > 0 && write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) std::abort();
}

/// Installs explain() as the handler of faults, each time that memory is protected: test frameworks install theirs at
/// any time.
void handle_faults() {
  struct sigaction mine {
  }, now{};
  mine.sa_sigaction = explain;
  mine.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &mine, &now);
  if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != explain) other_handler = now;
}

void protect(int device, int access) {
  const size_t used = (memory().tops[device] - arena(device) + kPage - 1) / kPage * kPage;
  if (used > 0 && mprotect(arena(device), used, access) != 0) die("mprotect failed");
}

// ---- addresses ------------------------------------------------------------------------------------------------------

char* find_range(size_t size, int device) {
  Memory& m = memory();
  for (auto range = m.free.lower_bound(arena(device)); range != m.free.end(); ++range) {
    const auto [start, length] = *range;
    if (device_of(start) != device) break;
    if (length < size) continue;
    m.free.erase(range);
    if (length > size) m.free[start + size] = length - size;
    return start;
  }
  char*& top = m.tops[device];
  if (size > kArena - kPage - size_t(top - arena(device))) return nullptr;
  if (m.open) die("memory is asked for while the GPU works");
  return std::exchange(top, top + size);
}

void give_back(char* start, size_t size) {
  auto& free = memory().free;
  auto next = free.lower_bound(start);
  if (next != free.end() && start + size == next->first) size += next->second, next = free.erase(next);
  if (next != free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == start) {
      before->second += size;
      return;
    }
  }
  free[start] = size;
}

void check_border(const MemoryBlock& block, const char* border) {
  static const std::string expected(kBorder, static_cast<char>(kCanary));
  if (std::memcmp(border, expected.data(), kBorder) == 0) return;
  for (size_t i = 0; i < kBorder; ++i)
    if (border[i] != static_cast<char>(kCanary))
      die("a write out of bounds: byte %td of a block of %zu bytes", border + i - block.data, block.size);
}

/// Aborts if freed memory was written.
void check_freed(const MemoryBlock& block) {
  if (kAsan || block.size == 0) return;
  constexpr char kFree = -1;
  if (block.data[0] == kFree && std::memcmp(block.data, block.data + 1, block.size - 1) == 0) return;
  const char* const written = std::find_if(block.data, block.data + block.size, [](char c) { return c != kFree; });
  die("a write into memory that was freed: byte %td of a block of %zu bytes", written - block.data, block.size);
}

void check(const MemoryBlock& block) {
  if (kAsan) return;
  check_border(block, block.data - kBorder);
  check_border(block, block.data + block.size);
}

}  // namespace

int device_count() {
  static const int count = [] {
    const char* const text = std::getenv("SIMT_DEVICES");
    return text ? std::clamp(std::atoi(text), 1, kMaxDevices) : 2;
  }();
  return count;
}

Open::Open(Devices devices) : before_(opened()) { reopen(devices); }
Open::~Open() { reopen(before_); }
Devices opened() { return memory().open; }
void reopen(Devices devices) {
  Devices& open = memory().open;
  for (int device = 0; device < device_count(); ++device)
    if ((open ^ devices) & only(device)) protect(device, devices & only(device) ? PROT_READ | PROT_WRITE : PROT_NONE);
  if (open && !devices) handle_faults();
  open = devices;
}

MemoryBlock* allocate(size_t size, int device) {
  const size_t whole = footprint(size);
  char* const range = whole < size ? nullptr : find_range(whole, device);
  if (!range) return nullptr;
  MemoryBlock& block = memory().blocks[range + kBorder] = {range + kBorder, size, device};
  ASAN_POISON_MEMORY_REGION(range, whole);
  return &block;
}

bool is_device(const void* address) { return address >= arenas() && address < arena(device_count()); }

MemoryBlock* find_block(const void* address, size_t bytes) {
  char* const first = static_cast<char*>(const_cast<void*>(address));
  auto& blocks = memory().blocks;
  auto after = blocks.upper_bound(first);
  if (after == blocks.begin()) return nullptr;
  MemoryBlock& block = std::prev(after)->second;
  const size_t offset = first - block.data;
  return offset <= block.size && bytes <= block.size - offset ? &block : nullptr;
}

void prepare(MemoryBlock* block) {
  const Open open(opened() | only(block->device));
  const auto [data, size] = std::pair(block->data, block->size);
  ASAN_UNPOISON_MEMORY_REGION(data - kBorder, footprint(size));
  std::memset(data - kBorder, kCanary, kBorder);
  std::memset(data + size, kCanary, kBorder);
  ASAN_POISON_MEMORY_REGION(data - kBorder, footprint(size));
  ASAN_UNPOISON_MEMORY_REGION(data, size);
  block->ready = true;
  std::memset(block->data, 0xff, block->size);
}

void rest(MemoryBlock* block) {
  if (!block->ready) return;
  const Open open(opened() | only(block->device));
  check(*block);
  std::memset(block->data, 0xff, block->size);
  ASAN_POISON_MEMORY_REGION(block->data, block->size);
  block->ready = false;
}

void retire(MemoryBlock* block) {
  rest(block);
  Memory& m = memory();
  m.quarantine.push_back(*block);
  m.quarantined += footprint(block->size);
  m.blocks.erase(block->data);
  while (m.quarantined > kQuarantine) {
    const MemoryBlock& oldest = m.quarantine.front();
    const Open open(opened() | only(oldest.device));
    check_freed(oldest);
    m.quarantined -= footprint(oldest.size);
    give_back(oldest.data - kBorder, footprint(oldest.size));
    m.quarantine.pop_front();
  }
}

void check_freed() {
  const Open open(kAllDevices);
  for (const MemoryBlock& block : memory().quarantine) check_freed(block);
}

void check_borders() {
  const Open open(kAllDevices);
  for (const auto& [address, block] : memory().blocks)
    if (block.ready) check(block);
}

}  // namespace simt
