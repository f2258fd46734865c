#include "lib/device/device.h"

#include <catch2/catch.hpp>

#include "lib/device/kernels/table.h"
#include "reel/tensor.h"

using namespace reel;

TEST_CASE("every device has memory, streams and events", "[device][cuda]") {
  const Device device = default_device();
  const int index = device.index;
  DeviceRuntime& on = runtime(device);
  CHECK(index < on.device_count());
  CHECK(!on.device_name(index).empty());
  CHECK(&on.kernels(index) == &kernels_on(device));

  const int64_t before = on.memory_stats(index).in_use;
  void* block = nullptr;
  REQUIRE(on.allocate(index, 1000, &block));
  CHECK(on.memory_stats(index).in_use >= before + 1000);

  const auto main = on.current_stream(index), stream = on.new_stream(index);
  const auto start = on.new_event(true), end = on.new_event(true);
  CHECK(end->query());  // never recorded
  {
    const DeviceStreamGuard guard(on, stream);
    CHECK(on.current_stream(index) == stream);
    CHECK(on.current_device() == index);
    start->record(*stream);
    on.record_stream(block, *stream);
    end->record(*stream);
  }
  CHECK(on.current_stream(index) == main);
  end->wait(*main);
  end->synchronize();
  CHECK(end->query());
  CHECK(start->elapsed_time(*end) >= 0);
  on.release(block, 1000);
  on.synchronize(index);
  CHECK(stream->query());
  CHECK(on.memory_stats(index).in_use == before);
}
