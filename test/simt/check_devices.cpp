// Tests of the shim with two GPUs: streams, events and memory belong to one of them.
#include <thread>

#include "check.h"

namespace checks {
namespace {

/// A stream, an event and memory of a device, made while it was current.
struct Own {
  cudaStream_t stream;
  float* data;
  cudaEvent_t event;
  explicit Own(int device) {
    SUCCEED(cudaSetDevice(device));
    stream = make_stream();
    data = make<float>(100, stream);
    SUCCEED(cudaEventCreate(&event));
    SUCCEED(cudaStreamSynchronize(stream));
  }
};

void devices_are_counted() {
  int count = 0, device = -1;
  SUCCEED(cudaGetDeviceCount(&count));
  EXPECT(count == 2);
  EXPECT(cudaSetDevice(2) == cudaErrorInvalidDevice && cudaSetDevice(-1) == cudaErrorInvalidDevice);
  SUCCEED(cudaSetDevice(1));
  SUCCEED(cudaGetDevice(&device));
  EXPECT(device == 1);
  std::thread([] {
    int other = -1;
    SUCCEED(cudaGetDevice(&other));
    EXPECT(other == 0);
  }).join();
}

void what_is_of_a_device_stays_there() {
  const Own first(0), second(1);
  EXPECT(simt::launch(set, 1, 32, 0, first.stream, first.data, 100, 1.f) == cudaErrorInvalidResourceHandle);
  EXPECT(cudaEventRecord(first.event, second.stream) == cudaErrorInvalidResourceHandle);
  SUCCEED(cudaEventRecord(first.event, first.stream));  // whatever is current
  SUCCEED(cudaEventRecord(second.event, second.stream));
  SUCCEED(cudaStreamWaitEvent(second.stream, first.event, 0));
  SUCCEED(cudaDeviceSynchronize());
  SUCCEED(cudaEventSynchronize(first.event));
  float milliseconds;
  EXPECT(cudaEventElapsedTime(&milliseconds, first.event, second.event) == cudaErrorInvalidResourceHandle);
  cudaPointerAttributes attributes;
  SUCCEED(cudaPointerGetAttributes(&attributes, second.data));
  EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.device == 1);
}

void copies_between_devices() {
  const Own first(0), second(1);
  launch(set, 1, 32, 0, second.stream, second.data, 100, 4.f);
  EXPECT(cudaMemcpyPeerAsync(first.data, 1, second.data, 0, 400, second.stream) == cudaErrorInvalidValue);
  SUCCEED(cudaMemcpyPeerAsync(first.data, 0, second.data, 1, 200, second.stream));
  const auto copy = [&] {
    return cudaMemcpyAsync(first.data + 50, second.data, 200, cudaMemcpyDefault, second.stream);
  };
  EXPECT(copy() == cudaErrorInvalidValue);
  cudaMemPool_t pool;
  SUCCEED(cudaDeviceGetDefaultMemPool(&pool, 0));
  cudaMemAccessDesc access{};
  access.location = {cudaMemLocationTypeDevice, 1};
  access.flags = cudaMemAccessFlagsProtReadWrite;
  SUCCEED(cudaMemPoolSetAccess(pool, &access, 1));
  SUCCEED(copy());
  SUCCEED(cudaEventRecord(second.event, second.stream));
  SUCCEED(cudaStreamWaitEvent(first.stream, second.event, 0));
  EXPECT(values(first.data, 100, first.stream) == std::vector<float>(100, 4));
}

void a_device_waits_for_itself() {
  const Own first(0), second(1);
  float* const result = make_pinned<float>(1);
  *result = -1;
  launch(set, 1, 32, 0, second.stream, second.data, 100, 4.f);
  SUCCEED(cudaMemcpyAsync(result, second.data, 4, cudaMemcpyDeviceToHost, second.stream));
  SUCCEED(cudaSetDevice(0));
  cudaGraph_t graph;
  SUCCEED(cudaStreamBeginCapture(first.stream, cudaStreamCaptureModeThreadLocal));
  SUCCEED(cudaSetDevice(1));
  SUCCEED(cudaDeviceSynchronize());  // nothing is captured here
  EXPECT(*result == 4);
  SUCCEED(cudaStreamEndCapture(first.stream, &graph));
}

void memory_is_that_of_a_device() {
  simt::limit_memory(64 << 20);
  void* address;
  size_t free, total;
  SUCCEED(cudaMalloc(&address, 60 << 20));
  SUCCEED(cudaSetDevice(1));
  SUCCEED(cudaMemGetInfo(&free, &total));
  EXPECT(free == total);
  SUCCEED(cudaMalloc(&address, 60 << 20));
  EXPECT(cudaMalloc(&address, 60 << 20) == cudaErrorMemoryAllocation);
}

template <bool kRead>
void touch_another_device() {
  const Own first(0), second(1);
  launch(set, 1, 32, 0, second.stream, second.data, 100, 1.f);
  SUCCEED(cudaStreamSynchronize(second.stream));
  SUCCEED(cudaSetDevice(0));
  if (kRead)
    launch(add, 1, 32, 0, first.stream, first.data, static_cast<const float*>(second.data), 100);
  else
    launch(set, 1, 32, 0, first.stream, second.data, 100, 2.f);
  SUCCEED(cudaStreamSynchronize(first.stream));
}

void forget_an_event_between_devices() {
  const Own first(0), second(1);
  SUCCEED(cudaDeviceSynchronize());
  launch(set, 1, 32, 0, second.stream, second.data, 100, 4.f);
  SUCCEED(cudaMemcpyPeerAsync(first.data, 0, second.data, 1, 400, first.stream));
  EXPECT(values(first.data, 100, first.stream)[0] == 4);
}

}  // namespace

const std::vector<Test> device_tests = {
    {"devices are counted", devices_are_counted},
    {"what is of a device stays there", what_is_of_a_device_stays_there},
    {"copies between devices", copies_between_devices},
    {"a device waits for itself", a_device_waits_for_itself},
    {"memory is that of a device", memory_is_that_of_a_device},
    {"a kernel reads another device's memory", touch_another_device<true>, Test::kDies, "a kernel of another device"},
    {"a kernel writes another device's memory", touch_another_device<false>, Test::kDies, "a kernel of another device"},
    {"a missing event between devices", forget_an_event_between_devices, Test::kIsCaught},
};

}  // namespace checks
