#include "lib/device/kernels/table.h"

#include <catch2/catch.hpp>
#include <set>

#include "lib/functors/lists.h"
#include "reel/tensor.h"

using namespace reel;

namespace {

struct RefuseNull {
  const KernelTable& table;
  std::set<const void*>& slots;

  template <class Get>
  void operator()(const char* name, Get get) const {
    INFO(name);
    CHECK(get(table) != nullptr);
    CHECK(slots.insert(&get(table)).second);
  }
  template <class Get, class... Functors>
  void operator()(const char* name, Get get, std::tuple<Functors...>*) const {
    INFO(name);
    REQUIRE(get(table) != nullptr);
    for (size_t i = 0; i < sizeof...(Functors); ++i) {
      INFO("functor " << i);
      CHECK(get(table)[i] != nullptr);
    }
    CHECK(slots.insert(&get(table)).second);
  }
};

}  // namespace

TEST_CASE("a device has every kernel, and each is visited once", "[kernels]") {
  std::set<const void*> slots;
  for_each_kernel<functors::Lists>(RefuseNull{kernels_on(default_device()), slots});
  CHECK(slots.size() * sizeof(void*) == sizeof(KernelTable));
}
