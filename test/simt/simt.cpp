// Runs kernels: a block's threads are fibers of one thread of the CPU, and blocks run one after the other.
//
// A fiber runs thread after thread until one blocks at a barrier or a shuffle; then another fiber continues with the
// next thread. So kernels without barriers and shuffles take one fiber only.
#include "simt.h"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "device.h"
#include "lib/base/fibers.h"

namespace simt {

Thread* current;
uint3 block_index;
dim3 block_size, grid_size;
unsigned char* dynamic_shared;

namespace {

constexpr unsigned kWarp = 32, kMaxThreads = 1024;
#ifdef REEL_ADDRESS_SANITIZER
constexpr size_t kStack = 512 << 10;
#else
constexpr size_t kStack = 128 << 10;
#endif
constexpr size_t kMaxShuffleBytes = 64;  // that a shuffle takes

// ---- fibers ---------------------------------------------------------------------------------------------------------

using reel::Fiber;
Fiber* host;                                           // the caller of run()
std::vector<Fiber*>& idle = *new std::vector<Fiber*>;  // not destroyed: tensors in static storage outlive it

void run_threads(void*);

Fiber* idle_fiber() {
  if (idle.empty()) try {
      return new Fiber(run_threads, nullptr, kStack);
    } catch (const std::bad_alloc&) {
      die("no memory for the stack of a thread");
    }
  Fiber* const fiber = idle.back();
  idle.pop_back();
  return fiber;
}

// ---- the block that runs --------------------------------------------------------------------------------------------

enum class State { ready, at_barrier, at_exchange, done };

struct Worker : Thread {
  Fiber* fiber;  // null: it has not begun
  State state;
  Place place;  // where it blocks
  unsigned mask;
  const void* mine;
  void* all;
  size_t bytes;
};

const void* kernel = nullptr;
const std::function<void()>* body = nullptr;
Worker workers[kMaxThreads];
unsigned threads, done, at_barrier;
unsigned votes, counted;  // at the current barrier, and at the last one
Worker* first_at_barrier;
unsigned waiting[kMaxThreads / kWarp];  // a warp's lanes that are in exchange()
unsigned order[kMaxThreads];            // in which threads are made ready
Worker* ready[kMaxThreads];             // a ring
unsigned first_ready, last_ready;
Worker* next = nullptr;  // for the fiber that is switched to

void make_ready(Worker* worker) {
  worker->state = State::ready;
  ready[last_ready++ % kMaxThreads] = worker;
}

Worker* take_ready() {
  if (first_ready == last_ready) return nullptr;
  if (seed() > 1)
    std::swap(ready[first_ready % kMaxThreads], ready[(first_ready + draw(last_ready - first_ready)) % kMaxThreads]);
  return ready[first_ready++ % kMaxThreads];
}

std::string lanes(unsigned set) {
  std::string text;
  for (unsigned lane = 0; lane < kWarp; ++lane)
    if (set >> lane & 1) text += (text.empty() ? "" : " ") + std::to_string(lane);
  return text;
}

/// Deadlock: no thread is ready.
[[noreturn]] void deadlock() {
  for (unsigned i = 0; i < threads; ++i) {
    const Worker& lane = workers[i];
    if (lane.state != State::at_exchange) continue;
    const unsigned missing = lane.mask & ~waiting[i / kWarp];
    die("divergent shuffle: thread %u is at %s:%d with the mask %08x, lanes %s of its warp are not", i, lane.place.file,
        lane.place.line, lane.mask, lanes(missing).c_str());
  }
  for (unsigned i = 0; i < threads; ++i)
    if (workers[i].state == State::at_barrier)
      die("divergent barrier: %u of %u threads wait at %s:%d, %u have returned", at_barrier, threads,
          workers[i].place.file, workers[i].place.line, done);
  die("threads wait for nothing");
}

/// The main function of a fiber.
void run_threads(void*) {
  for (;;) {
    current = next;
    next->fiber = &Fiber::running();
    (*body)();
    auto* const self = static_cast<Worker*>(current);
    self->state = State::done;
    ++done;
    next = take_ready();
    if (!next && done < threads) deadlock();
    if (next && !next->fiber) continue;
    idle.push_back(&Fiber::running());
    (next ? next->fiber : host)->switch_to();
  }
}

/// Runs other threads until the current one is ready again.
void wait() {
  Thread* const self = current;
  next = take_ready();
  if (!next) deadlock();
  if (next != self) (next->fiber ? next->fiber : idle_fiber())->switch_to();
  current = self;
}

bool same(Place a, Place b) { return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0); }

/// Distributes the values of the mask's lanes to all of them.
void complete(unsigned warp, const Worker& last) {
  Worker* const lanes = workers + warp * kWarp;
  unsigned char all[kWarp * kMaxShuffleBytes];
  std::memset(all, 0xff, kWarp * last.bytes);
  for (unsigned i = 0; i < kWarp; ++i) {
    if (!(last.mask >> i & 1)) continue;
    const Worker& lane = lanes[i];
    if (!same(lane.place, last.place) || lane.mask != last.mask || lane.bytes != last.bytes)
      die("divergent shuffle: lane %u of a warp is at %s:%d with the mask %08x, lane %u at %s:%d with %08x", i,
          lane.place.file, lane.place.line, lane.mask, last.number % kWarp, last.place.file, last.place.line,
          last.mask);
    std::memcpy(all + i * last.bytes, lane.mine, last.bytes);
  }
  for (unsigned i = 0; i < kWarp; ++i)
    if (last.mask >> i & 1) std::memcpy(lanes[i].all, all, kWarp * last.bytes);
  waiting[warp] &= ~last.mask;
  for (unsigned i = 0; i < kWarp; ++i) {
    const unsigned lane = seed() == 1 ? kWarp - 1 - i : i;
    if (last.mask >> lane & 1) make_ready(lanes + lane);
  }
}

void run_block() {
  std::memset(waiting, 0, sizeof waiting);
  done = at_barrier = votes = first_ready = last_ready = 0;
  for (unsigned i = 0; i < threads; ++i) {
    Worker& worker = workers[order[i]];
    worker.fiber = nullptr;
    make_ready(&worker);
  }
  next = take_ready();
  host = &Fiber::running();
  idle_fiber()->switch_to();
}

// ---- this program ---------------------------------------------------------------------------------------------------

/// The file of this program, for its sections and symbols. Without one there are none.
class Program {
 public:
  Program() {
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0) return;
    size_ = static_cast<size_t>(status.st_size);
    void* const mapped = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return;
    image_ = static_cast<const char*>(mapped);
    const auto& header = *reinterpret_cast<const Elf64_Ehdr*>(image_);
    sections_ = reinterpret_cast<const Elf64_Shdr*>(image_ + header.e_shoff);
    count_ = header.e_shnum;
    names_ = image_ + sections_[header.e_shstrndx].sh_offset;
    dl_iterate_phdr(  // the program itself comes first
        [](dl_phdr_info* info, size_t, void* to) { return *static_cast<uintptr_t*>(to) = info->dlpi_addr, 1; }, &base_);
  }
  ~Program() {
    if (image_) munmap(const_cast<char*>(image_), size_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  std::span<const Elf64_Shdr> sections() const { return {sections_, count_}; }
  std::string_view name_of(const Elf64_Shdr& section) const { return names_ + section.sh_name; }
  char* at(uint64_t address) const { return reinterpret_cast<char*>(base_ + address); }
  /// Calls f(symbol, its name) for each symbol.
  template <class F>
  void for_each_symbol(const F& f) const {
    for (const Elf64_Shdr& section : sections()) {
      if (section.sh_type != SHT_SYMTAB) continue;
      const char* const names = image_ + sections_[section.sh_link].sh_offset;
      const auto* const symbols = reinterpret_cast<const Elf64_Sym*>(image_ + section.sh_offset);
      for (size_t i = 0; i < section.sh_size / sizeof *symbols; ++i) f(symbols[i], names + symbols[i].st_name);
    }
  }

 private:
  const char *image_ = nullptr, *names_ = nullptr;
  const Elf64_Shdr* sections_ = nullptr;
  size_t size_ = 0, count_ = 0;
  uintptr_t base_ = 0;
};

// ---- shared memory --------------------------------------------------------------------------------------------------

struct Range {
  char* data;
  size_t size;
};

/// The __shared__ variables of all kernels of this program, and the linker sections that they are in.
struct StaticShared {
  std::vector<Range> sections, variables;
  StaticShared();
};
StaticShared::StaticShared() {
  const Program program;
  const auto is_shared = [&](unsigned section) {
    return section < program.sections().size() && program.name_of(program.sections()[section]).starts_with(".noinit");
  };
  for (unsigned i = 0; i < program.sections().size(); ++i)
    if (is_shared(i)) sections.push_back({program.at(program.sections()[i].sh_addr), program.sections()[i].sh_size});
  program.for_each_symbol([&](const Elf64_Sym& symbol, const char*) {
    if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && is_shared(symbol.st_shndx))
      variables.push_back({program.at(symbol.st_value), symbol.st_size});
  });
}

std::map<const void*, size_t>& measured() {
  static auto& all = *new std::map<const void*, size_t>;
  return all;
}

/// Fills static shared memory, and measures how much of it the kernel has written: not for each launch, as there may be
/// hundreds of kilobytes to fill.
class StaticSharedGuard {
 public:
  explicit StaticSharedGuard(const void* function) : function_(function) {
    static unsigned launches = 0;
    fills_ = launches++ % 64 == 0 || !measured().contains(function);
    if (!fills_) return;
    for (const auto [data, size] : all().sections) std::memset(data, 0xff, size);
  }
  /// `dynamic`: bytes.
  void measure(size_t dynamic) const {
    if (!fills_) return;
    size_t bytes = 0;
    for (const auto [data, size] : all().variables)
      if (std::any_of(data, data + size, [](char byte) { return byte != '\xff'; })) bytes += size;
    size_t& most = measured()[function_];
    most = std::max(most, bytes);
    if (most + dynamic > kMaxShared)
      die("%zu bytes of static and %zu of dynamic shared memory are more than a block has", most, dynamic);
  }

 private:
  static const StaticShared& all() {
    static const StaticShared& found = *new StaticShared;  // kernels may run when static objects are destroyed
    return found;
  }
  const void* function_;
  bool fills_;
};

struct Shared {
  explicit Shared(size_t bytes) {
    if (posix_memalign(&data, 128, bytes) != 0) die("no memory for a block's shared memory");
  }
  ~Shared() { std::free(data); }
  void* data;
};

}  // namespace

size_t static_shared(const void* function) {
  const auto found = measured().find(function);
  return found == measured().end() ? 0 : found->second;
}

const char* symbol_of(const void* function) {
  static const auto& names = []() -> auto& {
    auto& all = *new std::unordered_map<const void*, std::string>;
    const Program program;
    program.for_each_symbol([&](const Elf64_Sym& symbol, const char* name) {
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) all.emplace(program.at(symbol.st_value), name);
    });
    return all;
  }
  ();
  const auto found = names.find(function);
  return found == names.end() ? "?" : found->second.c_str();
}

bool in_kernel() { return kernel != nullptr; }

unsigned seed() {
  static const unsigned value = [] {
    const char* const text = std::getenv("SIMT_SEED");
    return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : 0;
  }();
  return value;
}

unsigned draw(unsigned limit) {
  static uint64_t state = 0x9e3779b97f4a7c15u * (seed() + 1);
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return static_cast<unsigned>((state >> 32) * limit >> 32);
}

void die(const char* format, ...) {
  std::fflush(stdout);
  std::fprintf(stderr, "simt: ");
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  if (kernel) {
    const char* const name = symbol_of(kernel);
    char* const readable = abi::__cxa_demangle(name, nullptr, nullptr, nullptr);
    std::fprintf(stderr, "\n  in block (%u, %u, %u) of %s", block_index.x, block_index.y, block_index.z,
                 readable ? readable : name);
  }
  std::fprintf(stderr, "\n");
  std::abort();
}

unsigned synchronize_block(Place place, bool vote) {
  auto* const self = static_cast<Worker*>(current);
  if (at_barrier == 0) first_at_barrier = self;
  if (const Worker& first = *first_at_barrier; at_barrier > 0 && !same(first.place, place))
    die("divergent barrier: thread %u is at %s:%d, thread %u at %s:%d", first.number, first.place.file,
        first.place.line, self->number, place.file, place.line);
  self->state = State::at_barrier;
  self->place = place;
  votes += vote;
  if (++at_barrier == threads) {
    at_barrier = 0;
    counted = std::exchange(votes, 0);
    for (unsigned i = 0; i < threads; ++i) make_ready(workers + order[i]);
  }
  wait();
  return counted;
}

void exchange(unsigned mask, const void* mine, void* all, size_t bytes, Place place) {
  auto* const self = static_cast<Worker*>(current);
  const unsigned warp = self->number / kWarp, lane = self->number % kWarp;
  if (!(mask >> lane & 1)) die("lane %u is not in its own mask %08x at %s:%d", lane, mask, place.file, place.line);
  if (bytes > kMaxShuffleBytes) die("a shuffle of %zu bytes at %s:%d", bytes, place.file, place.line);
  self->state = State::at_exchange;
  self->place = place;
  self->mask = mask;
  self->mine = mine;
  self->all = all;
  self->bytes = bytes;
  waiting[warp] |= 1u << lane;
  if ((waiting[warp] & mask) == mask) complete(warp, *self);
  wait();
}

void run(const void* function, dim3 grid, dim3 block, size_t shared, const std::function<void()>& thread) {
  kernel = function;
  body = &thread;
  grid_size = grid;
  block_size = block;
  threads = block.x * block.y * block.z;
  const StaticSharedGuard static_shared_memory(function);
  const Shared memory(shared);
  dynamic_shared = static_cast<unsigned char*>(memory.data);
  for (unsigned i = 0; i < threads; ++i) {
    static_cast<Thread&>(workers[i]) = {{i % block.x, i / block.x % block.y, i / block.x / block.y}, i};
    order[i] = seed() == 1 ? threads - 1 - i : i;
  }
  // Blocks in another order: a stride that is coprime to their number visits each of them once.
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
  uint64_t stride = 1, number = 0;
  if (seed() == 1) stride = blocks - 1, number = blocks - 1;
  if (seed() > 1) {
    number = draw(unsigned(std::min<uint64_t>(blocks, ~0u)));
    do stride = 1 + draw(unsigned(std::min<uint64_t>(blocks, 1u << 30)));
    while (std::gcd(stride, blocks) != 1);
  }
  const HostClosed closed;
  for (uint64_t i = 0; i < blocks; ++i, number = (number + stride) % blocks) {
    block_index = {unsigned(number % grid.x), unsigned(number / grid.x % grid.y), unsigned(number / grid.x / grid.y)};
    std::memset(dynamic_shared, 0xff, shared);
    run_block();
  }
  static_shared_memory.measure(shared);
  kernel = nullptr;
}

}  // namespace simt
