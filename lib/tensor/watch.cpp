#include "lib/tensor/watch.h"

#include <map>
#include <mutex>
#include <vector>

#include "lib/autograd/tape.h"
#include "lib/autograd/trace.h"
#include "lib/base/fork_lock.h"
#include "lib/base/lazy.h"

namespace reel {

constinit thread_local bool watching = false;

namespace {

struct Object {
  TensorImpl* tensor;
  Node* node;
  uint64_t number;
  const void* thread;
  std::vector<void*> stack;
};
struct Objects {
  std::mutex mutex;
  std::map<const void*, Object> alive;
  uint64_t next = 0;
};
Objects& objects() {
  static constinit Lazy<Objects> objects;
  return objects.get();
}
ForkLock objects_lock(ForkLock::Order::kMemory, objects().mutex);

void add(const void* address, TensorImpl* tensor, Node* node) {
  std::vector<void*> stack = stack_frames();
  std::lock_guard lock(objects().mutex);
  objects().alive[address] = {tensor, node, objects().next++, &watching, std::move(stack)};
}

}  // namespace

void watch(TensorImpl* tensor) {
  tensor->watched = true;
  add(tensor, tensor, nullptr);
}
void watch(Node* node) {
  node->watched = true;
  add(node, nullptr, node);
}
void unwatch(const void* object) {
  std::lock_guard lock(objects().mutex);
  objects().alive.erase(object);
}

uint64_t next_watched() {
  std::lock_guard lock(objects().mutex);
  return objects().next;
}

void for_each_watched(uint64_t since,
                      const std::function<void(TensorImpl* tensor, Node* node, const std::string& stack)>& f) {
  std::lock_guard lock(objects().mutex);
  std::map<uint64_t, const Object*> by_age;
  for (const auto& [address, object] : objects().alive)
    if (object.thread == &watching && object.number >= since) by_age.emplace(object.number, &object);
  for (const auto& [number, object] : by_age) f(object->tensor, object->node, describe_stack(object->stack));
}

}  // namespace reel
