#pragma once
#include <cudnn.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "lib/kernels/convolution.h"

// Convolutions as graphs of cuDNN's backend API, from the problem to a plan that a GPU can carry out. No GPU is needed
// for that: test/cuda/plans.cpp does it for one that is known by its properties only.
namespace reel::cuda {

/// A descriptor of cuDNN's. What takes one keeps what it needs of it.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept { return std::swap(raw_, other.raw_), *this; }
  cudnnBackendDescriptor_t raw() const { return raw_; }

  // Nothing happens after the first refusal.
  template <class T>
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T* values, int64_t count) {
    return set_any(name, type, values, count);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, auto value) {
    return set_any(name, type, &value, 1);
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
    return set_any(name, CUDNN_TYPE_INT64, values.data(), static_cast<int64_t>(values.size()));
  }
  Descriptor& set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    return set_any(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &other.raw_, 1);
  }
  /// False if cuDNN refuses this or what was set.
  bool finalize();

  /// How many values there are, of which `most` are written.
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, void* values, int64_t most) const;

 private:
  Descriptor& set_any(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
                      int64_t count);
  cudnnBackendDescriptor_t raw_ = nullptr;
  bool refused_ = false;
};

/// The GPU to plan for: a handle's or, without a handle, one with these properties.
struct DnnTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
};

/// What the tensors are called in a graph, by ConvPart.
inline constexpr int64_t kDnnIds[] = {1, 2, 3};

/// A problem, and how exact the answer must be.
struct DnnProblem {
  ConvPart wanted;
  const Convolution& conv;
  bool tf32;
  std::array<int64_t, 3> alignment;  // of data, by ConvPart
};

/// Nothing where cuDNN cannot state or refuses the problem.
std::optional<Descriptor> dnn_graph(const DnnTarget& target, const DnnProblem& problem);
/// The deterministic engine configurations for it that are exact enough, those first that cuDNN thinks best of.
std::vector<Descriptor> dnn_engines(const DnnTarget& target, const DnnProblem& problem, const Descriptor& graph,
                                    cudnnBackendHeurMode_t mode);
/// Nothing if it fails in the end.
std::optional<Descriptor> dnn_plan(const DnnTarget& target, const Descriptor& engine);
int64_t workspace_of(const Descriptor& plan);

}  // namespace reel::cuda
