#pragma once
#include <functional>
#include <string>

namespace reel {

struct TensorImpl;
struct Node;

/// What testing::LeakScope looks at: tensors and recorded ops that a thread makes while it watches, until they die.
/// A thread that does not watch pays for a test of this flag.
extern constinit thread_local bool watching;
void watch(TensorImpl* tensor);
void watch(Node* node);
void unwatch(const void* object);

/// Of the watched objects, those that the calling thread has made since it numbered `since` and that are alive, oldest
/// first, with the stack on which each was made. One of the two pointers is set.
uint64_t next_watched();
void for_each_watched(uint64_t since,
                      const std::function<void(TensorImpl* tensor, Node* node, const std::string& stack)>& f);

}  // namespace reel
