#pragma once
#include <cudnn.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "lib/device/kernels/convolution.h"

// Convolutions as graphs of cuDNN's backend API (https://docs.nvidia.com/deeplearning/cudnn/backend), from the problem
// to an execution plan. Making a plan needs no GPU, only its properties: test/cuda/plans.cpp checks on any machine that
// an H100 has a plan for each kind of problem.
namespace reel::cuda {

/// An owned cuDNN descriptor. A descriptor that is set as another's attribute may be destroyed afterwards: cuDNN keeps
/// what it needs of it.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept { return std::swap(raw_, other.raw_), *this; }
  cudnnBackendDescriptor_t raw() const { return raw_; }

  // Setters do nothing after the first error, which finalize() reports.
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
  /// False if cuDNN refuses the descriptor or refused one of its attributes. `failure`: gets the status if that says
  /// more than that the problem is not supported: memory, say, or a library of cuDNN's that is missing.
  bool finalize(cudnnStatus_t* failure = nullptr);

  /// The number of values of an attribute, the first `most` of which are written to `values`; 0 on an error.
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, void* values, int64_t most) const;

 private:
  Descriptor& set_any(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
                      int64_t count);
  cudnnBackendDescriptor_t raw_ = nullptr;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;  // of the first attribute that was refused
};

/// The GPU to plan for: that of a handle or, without a handle, any GPU with these properties.
struct DnnTarget {
  cudnnHandle_t handle = nullptr;
  const Descriptor* properties = nullptr;
  cudnnStatus_t* failure = nullptr;  // the last status that was no refusal of the problem, as of Descriptor::finalize
};

/// The unique ids of the tensors in a graph: by ConvPart, and the bias.
inline constexpr int64_t kDnnIds[] = {1, 2, 3, 4};

/// A convolution and the precision it is computed in.
struct DnnProblem {
  ConvPart wanted;
  const Convolution& conv;
  bool tf32;
  std::array<int64_t, 4> alignment;  // of data by ConvPart, and of the bias
  bool deterministic = true;         // no engine that may give other bits in each run
};

/// Whether cuDNN has a way to say this: its paddings are the same for a range of outputs, or there is none that fits.
bool dnn_can_state(const Convolution& conv);
/// The graph of these operations; nothing where cuDNN refuses it.
std::optional<Descriptor> dnn_graph(const DnnTarget& target, const std::vector<cudnnBackendDescriptor_t>& operations);
/// The engine configurations for a graph in the order of cuDNN's heuristics: the fastest estimate first.
std::vector<Descriptor> dnn_configs(const DnnTarget& target, const Descriptor& graph, cudnnBackendHeurMode_t mode);
/// Nothing where cuDNN cannot build the plan after all.
std::optional<Descriptor> dnn_plan(const DnnTarget& target, const Descriptor& engine);
int64_t workspace_of(const Descriptor& plan);

/// A way to compute a convolution.
struct DnnPlan {
  Descriptor plan;
  int64_t workspace;            // bytes
  bool adds_bias;               // otherwise the bias, if any, is left to add to y
  bool tensor_cores;            // whether its engine uses them
  bool compiled;                // whether its engine is compiled at run time
  cudnnBackendHeurMode_t mode;  // in which the heuristics name the engine
  int rank;                     // its place there
};
/// The plans to try, the preferred one first: at least `most` of them if there are so many. They are exact, and if
/// wanted deterministic, enough. None where cuDNN cannot express or refuses the problem.
std::vector<DnnPlan> dnn_plans(const DnnTarget& target, const DnnProblem& problem, size_t most);

}  // namespace reel::cuda
