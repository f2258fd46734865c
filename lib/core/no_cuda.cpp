#include "lib/device.h"
#include "lib/kernels/table.h"
#include "reel/cuda.h"

// Takes the place of cuda/ in a build without CUDA.
namespace reel {
namespace {
[[noreturn]] void absent() { detail::fail("this build of reel has no CUDA backend"); }
}  // namespace

const KernelTable& device_kernels(Device) { absent(); }

namespace cuda {

int current_device() { return 0; }
int device_count() { return 0; }
std::string device_name(int) { absent(); }
void synchronize(int) { absent(); }
MemoryStats memory_stats(int) { absent(); }
void reset_peak_memory_stats(int) { absent(); }
void empty_cache(int) { absent(); }
void set_sync_debug_mode(SyncDebugMode) {}
void release_block(void*) {}
void* allocate_pinned(size_t) { absent(); }
void release_pinned(void*) { absent(); }
bool is_pinned(const void*) { return false; }
void record_stream(void*, const Stream&) { absent(); }
bool capturing() { return false; }
void before_replay(std::function<void()>) {}

Stream::Stream(int) { absent(); }
Stream Stream::current(int) { absent(); }
int Stream::device() const { absent(); }
void Stream::synchronize() const { absent(); }
bool Stream::query() const { absent(); }
void* Stream::native() const { absent(); }
StreamGuard::StreamGuard(const Stream&) { absent(); }
StreamGuard::~StreamGuard() = default;
Event::Event(bool) { absent(); }
void Event::record(const Stream&) { absent(); }
void Event::record() { absent(); }
void Event::wait(const Stream&) const { absent(); }
void Event::synchronize() const { absent(); }
bool Event::query() const { absent(); }
double Event::elapsed_time(const Event&) const { absent(); }

Graph::Graph() = default;
Graph::~Graph() = default;
void Graph::capture(const std::function<void()>&, int) { absent(); }
void Graph::replay() { absent(); }
size_t Graph::size() const { return 0; }
struct Graph::Impl {};

}  // namespace cuda
}  // namespace reel
