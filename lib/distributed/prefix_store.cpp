#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reel/distributed/store.h"

namespace reel::distributed {
namespace {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::string prefix, std::shared_ptr<Store> store)
      : prefix_(std::move(prefix)), store_(std::move(store)) {}

  void set(std::string_view key, std::string_view value) override { store_->set(full(key), value); }
  std::string get(std::string_view key, Milliseconds timeout) override { return store_->get(full(key), timeout); }
  int64_t add(std::string_view key, int64_t amount) override { return store_->add(full(key), amount); }
  std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) override {
    return store_->compare_set(full(key), expected, desired);
  }
  void wait(std::span<const std::string> keys, Milliseconds timeout) override {
    std::vector<std::string> all;
    all.reserve(keys.size());
    for (const std::string& key : keys) all.push_back(full(key));
    store_->wait(all, timeout);
  }
  bool erase(std::string_view key) override { return store_->erase(full(key)); }

 private:
  std::string full(std::string_view key) const { return prefix_ + "/" + std::string(key); }

  const std::string prefix_;
  const std::shared_ptr<Store> store_;
};

}  // namespace

std::shared_ptr<Store> prefix_store(std::string prefix, std::shared_ptr<Store> store) {
  REEL_CHECK(store, "prefix_store: there is no store");
  return std::make_shared<PrefixStore>(std::move(prefix), std::move(store));
}

}  // namespace reel::distributed
