#pragma once
#include <functional>
#include <string>

namespace reel {

struct TensorImpl;
struct Node;

// The registry behind testing::LeakScope: tensors and recorded ops that a thread makes while `watching` is set, each
// until it is freed, with the stack on which it was made.

/// Whether the calling thread registers what it makes. Without a LeakScope, making a tensor costs a test of this flag.
extern constinit thread_local bool watching;
/// Registers a tensor or a node, and sets its `watched`.
void watch(TensorImpl* tensor);
void watch(Node* node);
/// Removes what is about to be freed.
void unwatch(const void* object);

/// The number that the next registered object of any thread gets.
uint64_t next_watched();
/// Calls f for the registered objects of the calling thread with numbers from `since` on, oldest first. One of the two
/// pointers is set. Under the registry's mutex: f must neither make nor free tensors.
void for_each_watched(uint64_t since,
                      const std::function<void(TensorImpl* tensor, Node* node, const std::string& stack)>& f);

}  // namespace reel
