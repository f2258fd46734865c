#pragma once
#include <cstddef>
#include <functional>

namespace reel {

namespace cuda {
/// Gives back what KernelTable::allocate has given. The calling thread's current device stays what it is.
void release_block(void* block);
// Pinned host memory, from which copies to a GPU are asynchronous (cuda/pinned.cu).
void* allocate_pinned(size_t bytes);
void release_pinned(void* data);
bool is_pinned(const void* data);
/// Keeps a block from being used again before the stream has done what it has been given by then.
void record_stream(void* block, const class Stream& stream);
/// Is the calling thread capturing a cuda::Graph?
bool capturing();
/// What has to be called again before the graph that is being captured is replayed: it calls the same kernels with the
/// same tensors in the same order, with new numbers among their arguments; their launches do nothing.
void before_replay(std::function<void()> again);
}  // namespace cuda

}  // namespace reel
