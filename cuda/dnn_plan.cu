#include "cuda/dnn_plan.h"
#include "lib/kernels/convolution.h"

#include <algorithm>

namespace reel::cuda {

// ---- descriptors ----------------------------------------------------------------------------------------------------

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
  const cudnnStatus_t status = cudnnBackendCreateDescriptor(type, &raw_);
  REEL_CHECK(status == CUDNN_STATUS_SUCCESS, "cuDNN: ", cudnnGetErrorString(status),
             " from cudnnBackendCreateDescriptor");
}
Descriptor::~Descriptor() {
  if (raw_) cudnnBackendDestroyDescriptor(raw_);
}

Descriptor& Descriptor::set_any(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
                                int64_t count) {
  if (status_ == CUDNN_STATUS_SUCCESS) status_ = cudnnBackendSetAttribute(raw_, name, type, count, values);
  return *this;
}
bool Descriptor::finalize(cudnnStatus_t* failure) {
  if (status_ == CUDNN_STATUS_SUCCESS) status_ = cudnnBackendFinalize(raw_);
  const auto category = CUDNN_STATUS_CATEGORY(status_);
  if (failure && status_ != CUDNN_STATUS_SUCCESS && category != CUDNN_STATUS_BAD_PARAM &&
      category != CUDNN_STATUS_NOT_SUPPORTED)
    *failure = status_;
  return status_ == CUDNN_STATUS_SUCCESS;
}

int64_t Descriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, void* values,
                        int64_t most) const {
  int64_t count = 0;
  if (cudnnBackendGetAttribute(raw_, name, type, most, &count, values) != CUDNN_STATUS_SUCCESS) return 0;
  return count;
}

// ---- a convolution as a graph ---------------------------------------------------------------------------------------

namespace {

using Dims = std::vector<int64_t>;

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case kFloat16: return CUDNN_DATA_HALF;
    case kBFloat16: return CUDNN_DATA_BFLOAT16;
    case kFloat32: return CUDNN_DATA_FLOAT;
    default: return CUDNN_DATA_DOUBLE;
  }
}

/// Index of the first spatial dimension that cuDNN gets: a convolution whose depth is 1 is stated as
/// two-dimensional.
size_t first_dimension(const Convolution& c) {
  return c.x_size[0] == 1 && c.kernel[0] == 1 && c.y_size[0] == 1 && c.before[0] == 0 ? 1 : 0;
}

Dims sizes_of(const Convolution& c, ConvPart part) {
  Dims sizes = part == kConvX ? Dims{c.n, c.in} : part == kConvWeight ? Dims{c.out, c.in / c.groups} : Dims{c.n, c.out};
  const auto& spatial = part == kConvX ? c.x_size : part == kConvWeight ? c.kernel : c.y_size;
  for (size_t d = first_dimension(c); d < 3; ++d) sizes.push_back(spatial[d]);
  return sizes;
}

std::optional<Descriptor> tensor(const DnnProblem& problem, ConvPart part) {
  const Dims sizes = sizes_of(problem.conv, part);
  Dims strides(sizes.size(), 1);
  for (size_t d = sizes.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * sizes[d + 1];
  Descriptor result(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  result.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type_of(problem.conv.dtype))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, kDnnIds[part])
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::min<int64_t>(problem.alignment[part], 16));
  if (!result.finalize()) return {};
  return result;
}

/// A padding after x that gives the output's size, nothing if there is none. Outputs of cuDNN end where the last whole
/// window does, so several paddings may do: that before x is preferred, as most engines support only symmetric ones.
std::optional<int64_t> padding_after(const Convolution& c, size_t d) {
  const int64_t reach = (c.kernel[d] - 1) * c.dilation[d] + 1;
  const int64_t least = (c.y_size[d] - 1) * c.stride[d] + reach - c.x_size[d] - c.before[d];
  for (const int64_t after : {c.before[d], std::max<int64_t>(least, 0)})
    if (after >= least && after - least < c.stride[d]) return after;
  return {};
}

}  // namespace

bool dnn_can_state(const Convolution& c) {
  for (size_t d = first_dimension(c); d < 3; ++d)
    if (!padding_after(c, d)) return false;
  return true;
}

namespace {

std::optional<Descriptor> windows(const Convolution& c) {
  Dims stride, dilation, before, after;
  for (size_t d = first_dimension(c); d < 3; ++d) {
    const std::optional<int64_t> padding = padding_after(c, d);
    if (!padding) return {};
    stride.push_back(c.stride[d]), dilation.push_back(c.dilation[d]);
    before.push_back(c.before[d]), after.push_back(*padding);
  }
  Descriptor result(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  result
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
           c.dtype == kFloat64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, static_cast<int64_t>(stride.size()))
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, stride)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilation)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after);
  if (!result.finalize()) return {};
  return result;
}

/// cuDNN's attribute names for the convolution and its two gradients.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t windows, alpha, beta, part[3];
};
constexpr Names kNames[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY}},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
      CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}}};
static_assert(kConvX == 0 && kConvWeight == 1 && kConvY == 2);

}  // namespace

std::optional<Descriptor> dnn_graph(const DnnTarget& target, const DnnProblem& problem) {
  const std::optional<Descriptor> form = windows(problem.conv);
  if (!form) return {};
  const Names& names = kNames[problem.wanted];
  Descriptor operation(names.operation), graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  for (const ConvPart part : {kConvX, kConvWeight, kConvY}) {
    const std::optional<Descriptor> operand = tensor(problem, part);
    if (!operand) return {};
    operation.set(names.part[part], *operand);
  }
  operation.set(names.windows, *form).set(names.alpha, CUDNN_TYPE_DOUBLE, 1.0).set(names.beta, CUDNN_TYPE_DOUBLE, 0.0);
  if (!operation.finalize()) return {};
  if (target.handle) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  if (!graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation).finalize(target.failure)) return {};
  return graph;
}

// ---- engines --------------------------------------------------------------------------------------------------------

bool dnn_has(const Descriptor& config, cudnnBackendNumericalNote_t note) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.raw();
  config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw, 1);
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  const int64_t count =
      engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return std::find(notes, notes + count, note) != notes + count;
}

namespace {

/// No less exact than the types promise: float32 without tensor cores unless TF32 is allowed, half types summed in
/// float32. And deterministic, if wanted.
bool is_acceptable(const Descriptor& config, const DnnProblem& problem) {
  const auto has = [&](cudnnBackendNumericalNote_t note) { return dnn_has(config, note); };
  if (problem.deterministic && has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  if (is_half(problem.conv.dtype)) return !has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
  if (problem.conv.dtype == kFloat64 || problem.tf32) return true;
  return !has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) && !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
}

}  // namespace

std::vector<Descriptor> dnn_configs(const DnnTarget& target, const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode);
  if (target.properties) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  if (!heuristics.finalize(target.failure)) return {};
  const auto results = [&](void* raw, int64_t most) {
    return heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw, most);
  };
  std::vector<Descriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t left = results(nullptr, 0); left > 0; --left)
    raw.push_back(configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).raw());
  configs.erase(configs.begin() + results(raw.data(), static_cast<int64_t>(raw.size())), configs.end());
  return configs;
}

std::vector<Descriptor> dnn_engines(const DnnTarget& target, const DnnProblem& problem, const Descriptor& graph,
                                    cudnnBackendHeurMode_t mode, std::vector<int>* ranks) {
  std::vector<Descriptor> configs = dnn_configs(target, graph, mode), acceptable;
  for (size_t i = 0; i < configs.size(); ++i) {
    if (!is_acceptable(configs[i], problem)) continue;
    acceptable.push_back(std::move(configs[i]));
    if (ranks) ranks->push_back(static_cast<int>(i));
  }
  return acceptable;
}

std::optional<Descriptor> dnn_plan(const DnnTarget& target, const Descriptor& engine) {
  Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
  if (target.handle)
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  else
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
  if (!plan.finalize(target.failure)) return {};
  return plan;
}

int64_t workspace_of(const Descriptor& plan) {
  int64_t bytes = 0;
  plan.get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, &bytes, 1);
  return bytes;
}

}  // namespace reel::cuda
