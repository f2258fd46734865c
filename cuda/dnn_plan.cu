#include "cuda/dnn_plan.h"
#include "cuda/dnn_types.h"
#include "lib/device/kernels/convolution.h"

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
  if (failure && status_ != CUDNN_STATUS_SUCCESS && !is_refusal(status_)) *failure = status_;
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

/// Index of the first spatial dimension that cuDNN gets: a convolution whose depth is 1 is stated as
/// two-dimensional.
size_t first_dimension(const Convolution& c) {
  return c.x_size[0] == 1 && c.kernel[0] == 1 && c.y_size[0] == 1 && c.before[0] == 0 ? 1 : 0;
}

/// Beside the parts of a Convolution. The sum is the convolution without the bias, which never lies in memory.
constexpr int kBias = 3, kSum = 4;

Dims sizes_of(const Convolution& c, int part) {
  if (part == kBias) {
    Dims sizes(5 - first_dimension(c), 1);
    sizes[1] = c.out;
    return sizes;
  }
  Dims sizes = part == kConvX ? Dims{c.n, c.in} : part == kConvWeight ? Dims{c.out, c.in / c.groups} : Dims{c.n, c.out};
  const auto& spatial = part == kConvX ? c.x_size : part == kConvWeight ? c.kernel : c.y_size;
  for (size_t d = first_dimension(c); d < 3; ++d) sizes.push_back(spatial[d]);
  return sizes;
}

std::optional<Descriptor> tensor(const DnnProblem& problem, int part) {
  const DType dtype = problem.conv.dtype;
  const Dims sizes = sizes_of(problem.conv, part);
  const size_t laid_out_as = part < kBias ? static_cast<size_t>(part) : kConvY;
  const Dims strides = dense_strides(sizes, problem.conv.channels_last[laid_out_as]);
  Descriptor result(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  result.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, part == kSum ? dnn_wide_type(dtype) : dnn_type(dtype))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, part == kSum ? int64_t{100} : kDnnIds[part])
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64,
           part == kSum ? int64_t{16} : std::min<int64_t>(problem.alignment[static_cast<size_t>(part)], 16));
  if (part == kSum) result.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
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
  result.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, dnn_wide_type(c.dtype))
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

/// y = sum + bias.
std::optional<Descriptor> add_bias(const DnnProblem& problem) {
  const std::optional<Descriptor> sum = tensor(problem, kSum), bias = tensor(problem, kBias),
                                  y = tensor(problem, kConvY);
  if (!sum || !bias || !y) return {};
  Descriptor form(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  form.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_ADD)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, dnn_wide_type(problem.conv.dtype));
  if (!form.finalize()) return {};
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, form)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, *sum)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *bias)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, *y);
  if (!operation.finalize()) return {};
  return operation;
}

/// The operation graph, with the bias or without it; nothing where cuDNN cannot express or refuses the problem.
std::optional<Descriptor> graph_of(const DnnTarget& target, const DnnProblem& problem, bool with_bias) {
  const std::optional<Descriptor> form = windows(problem.conv);
  if (!form) return {};
  const Names& names = kNames[problem.wanted];
  Descriptor convolution(names.operation);
  for (const ConvPart part : {kConvX, kConvWeight, kConvY}) {
    const std::optional<Descriptor> operand = tensor(problem, with_bias && part == kConvY ? kSum : part);
    if (!operand) return {};
    convolution.set(names.part[part], *operand);
  }
  convolution.set(names.windows, *form);
  // Of the type that is computed in: cuDNN accepts a double for float32 as well, but reads its first half, which is 0.
  if (problem.conv.dtype == kFloat64)
    convolution.set(names.alpha, CUDNN_TYPE_DOUBLE, 1.0).set(names.beta, CUDNN_TYPE_DOUBLE, 0.0);
  else
    convolution.set(names.alpha, CUDNN_TYPE_FLOAT, 1.f).set(names.beta, CUDNN_TYPE_FLOAT, 0.f);
  if (!convolution.finalize()) return {};
  if (!with_bias) return dnn_graph(target, {convolution.raw()});
  const std::optional<Descriptor> sum = add_bias(problem);
  return sum ? dnn_graph(target, {convolution.raw(), sum->raw()}) : std::nullopt;
}

}  // namespace

std::optional<Descriptor> dnn_graph(const DnnTarget& target, const std::vector<cudnnBackendDescriptor_t>& operations) {
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (target.handle) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operations.data(),
            static_cast<int64_t>(operations.size()));
  if (!graph.finalize(target.failure)) return {};
  return graph;
}

// ---- engines --------------------------------------------------------------------------------------------------------

namespace {

/// What an engine is said to be like.
struct Notes {
  cudnnBackendNumericalNote_t numerical[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  cudnnBackendBehaviorNote_t behavior[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
  int64_t numericals, behaviors;

  explicit Notes(const Descriptor& config) {
    Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendDescriptor_t raw = engine.raw();
    config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &raw, 1);
    numericals = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, numerical,
                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    behaviors =
        engine.get(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, behavior, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  }
  bool has(cudnnBackendNumericalNote_t note) const {
    return std::find(numerical, numerical + numericals, note) != numerical + numericals;
  }
  bool has(cudnnBackendBehaviorNote_t note) const {
    return std::find(behavior, behavior + behaviors, note) != behavior + behaviors;
  }
};

/// No less exact than the types promise: float32 without tensor cores unless TF32 is allowed, half types summed in
/// float32. And deterministic, if wanted. A bias is not worth an engine that is compiled for each problem anew, in
/// seconds.
bool is_acceptable(const Notes& engine, const DnnProblem& problem, bool with_bias) {
  if (problem.deterministic && engine.has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  if (with_bias && engine.has(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)) return false;
  if (is_half(problem.conv.dtype)) return !engine.has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
  if (problem.conv.dtype == kFloat64 || problem.tf32) return true;
  return !engine.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) && !engine.has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
}

constexpr int64_t kMaxWorkspace = int64_t{1} << 30;  // bytes; engines that need more are passed over

/// The first `most` plans of a graph, in the order of the heuristics.
std::vector<DnnPlan> plans_of(const DnnTarget& target, const DnnProblem& problem,
                              const std::optional<Descriptor>& graph, bool with_bias, cudnnBackendHeurMode_t mode,
                              size_t most) {
  std::vector<DnnPlan> plans;
  if (!graph) return plans;
  const std::vector<Descriptor> configs = dnn_configs(target, *graph, mode);
  for (size_t i = 0; i < configs.size() && plans.size() < most; ++i) {
    const Notes engine(configs[i]);
    if (!is_acceptable(engine, problem, with_bias)) continue;
    std::optional<Descriptor> plan = dnn_plan(target, configs[i]);
    const int64_t workspace = plan ? workspace_of(*plan) : 0;
    if (plan && workspace <= kMaxWorkspace)
      plans.push_back({std::move(*plan), workspace, with_bias, engine.has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE),
                       engine.has(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION), mode, static_cast<int>(i)});
  }
  return plans;
}

/// Whether the bias keeps a convolution off tensor cores, or off an engine made for it, which saves more than the bias'
/// own kernel costs.
bool is_faster_alone(const DnnPlan& plain, const DnnPlan& whole) {
  return plain.tensor_cores > whole.tensor_cores || plain.compiled > whole.compiled;
}

}  // namespace

std::vector<DnnPlan> dnn_plans(const DnnTarget& target, const DnnProblem& problem, size_t most) {
  const std::optional<Descriptor> whole = problem.conv.bias ? graph_of(target, problem, true) : std::nullopt;
  const std::optional<Descriptor> plain = graph_of(target, problem, false);
  std::vector<DnnPlan> all;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (all.size() >= most) break;
    std::vector<DnnPlan> first = plans_of(target, problem, whole, true, mode, most);
    std::vector<DnnPlan> second = plans_of(target, problem, plain, false, mode, most);
    if (!first.empty() && !second.empty() && is_faster_alone(second[0], first[0])) std::swap(first, second);
    for (std::vector<DnnPlan>* plans : {&first, &second})
      for (DnnPlan& plan : *plans) all.push_back(std::move(plan));
  }
  return all;
}

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
