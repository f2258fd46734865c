#include "cuda/dnn.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <vector>

#include "cuda/dnn_handle.h"
#include "cuda/dnn_plan.h"
#include "cuda/plans.h"
#include "cuda/runtime.h"
#include "cuda/stopwatch.h"
#include "lib/device/kernels/convolution.h"
#include "reel/precision.h"

// Convolutions by cuDNN: plans are chosen by its heuristics, without timing engines unless cudnn_benchmark() is set, so
// the same program runs the same engines (and gets the same bits) each time.
namespace reel::cuda {
namespace {

constexpr size_t kMaxPlans = 512;  // per thread and device
constexpr size_t kMostTimed = 6;   // engines that are timed for a problem

/// Where there is no plan; `failure`: other than a refusal.
void report(const DnnProblem& problem, cudnnStatus_t failure) {
  static constexpr const char* kWhat[] = {"the gradient of x of", "the gradient of the weight of", ""};
  const Convolution& c = problem.conv;
  std::ostringstream text;
  text << "cuDNN has no plan for " << kWhat[problem.wanted] << " a convolution of " << name_of(c.dtype) << " of " << c.n
       << " x " << c.in << " channels of " << c.x_size[0] << " x " << c.x_size[1] << " x " << c.x_size[2] << " with "
       << c.out << " kernels of " << c.kernel[0] << " x " << c.kernel[1] << " x " << c.kernel[2];
  if (c.channels_last[kConvX]) text << ", channels last";
  if (failure != CUDNN_STATUS_SUCCESS) text << " (" << cudnnGetErrorString(failure) << ")";
  note_fallback(text.str());
}

/// The first of the plans there are, or the fastest of kMostTimed, once it has been found. Empty if there is none.
class Plan {
 public:
  Plan(cudnnHandle_t handle, const DnnProblem& problem, bool timed)
      : plans_(dnn_plans({handle, nullptr, &failure_}, problem, timed ? kMostTimed : 1)) {
    if (plans_.empty()) report(problem, failure_);
    if (!timed && plans_.size() > 1) plans_.erase(plans_.begin() + 1, plans_.end());
  }
  explicit operator bool() const { return !plans_.empty(); }
  /// An empty plan is remembered unless something has failed, which need not be so the next time.
  bool lasts() const { return !plans_.empty() || failure_ == CUDNN_STATUS_SUCCESS; }

  void run(cudnnHandle_t handle, const Convolution& c) {
    if (plans_.size() > 1 && capturing()) plans_.erase(plans_.begin() + 1, plans_.end());  // the graph has the first
    if (plans_.size() > 1) choose(handle, c);
    CUDNN_CHECK(execute(plans_.front(), handle, c));
  }

 private:
  /// With this data, into whose result each of them writes the same.
  void choose(cudnnHandle_t handle, const Convolution& c) {
    size_t best = 0;
    float least = INFINITY;
    for (size_t i = 0; i < plans_.size(); ++i) {
      if (execute(plans_[i], handle, c) != CUDNN_STATUS_SUCCESS) continue;
      const float time = time_of([&] { CUDNN_CHECK(execute(plans_[i], handle, c)); });
      if (time < least) least = time, best = i;
    }
    std::swap(plans_.front(), plans_[best]);
    plans_.erase(plans_.begin() + 1, plans_.end());
  }

  static cudnnStatus_t execute(const DnnPlan& chosen, cudnnHandle_t handle, const Convolution& c) {
    const Scratch<char> workspace(std::max<int64_t>(chosen.workspace, 1));
    Descriptor data(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const void* const pointers[] = {c.data[0], c.data[1], c.data[2], c.bias};
    const int64_t count = chosen.adds_bias ? 4 : 3;
    data.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, kDnnIds, count)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers, count)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, static_cast<void*>(workspace.data()));
    REEL_CHECK(data.finalize(), "cuDNN refuses the data of a convolution");
    const cudnnStatus_t status = cudnnBackendExecute(handle, chosen.plan.raw(), data.raw());
    if (status == CUDNN_STATUS_SUCCESS && c.bias && !chosen.adds_bias) add_bias(c);
    return status;
  }

  cudnnStatus_t failure_ = CUDNN_STATUS_SUCCESS;
  std::vector<DnnPlan> plans_;
};

using Key = PlanKey<26>;
Key key_of(const DnnProblem& problem) {
  const Convolution& c = problem.conv;
  const auto& at = problem.alignment;
  Key key{problem.wanted | static_cast<int64_t>(c.dtype) << 8 | problem.tf32 << 16 | problem.deterministic << 17 |
              cudnn_benchmark() << 18 | int64_t{c.bias != nullptr} << 19 | int64_t{c.channels_last[kConvX]} << 20 |
              int64_t{c.channels_last[kConvWeight]} << 21 | int64_t{c.channels_last[kConvY]} << 22,
          at[0] | at[1] << 16 | at[2] << 32 | at[3] << 48,
          c.n,
          c.in,
          c.out,
          c.groups};
  auto to = key.begin() + 6;
  for (const auto* list : {&c.x_size, &c.kernel, &c.y_size, &c.stride, &c.dilation, &c.before})
    to = std::copy(list->begin(), list->end(), to);
  return key;
}

struct ConvolutionPlans : Plans<std::tuple_size_v<Key>, Plan> {
  ConvolutionPlans() : Plans(kMaxPlans) {}
};

}  // namespace

bool cudnn_convolve(ConvPart wanted, const Convolution& c) {
  if (!has_one_layout(c) || !dnn_can_state(c)) return false;
  const cudnnHandle_t handle = DnnHandle::get();
  DnnProblem problem{wanted, c, c.dtype == kFloat32 && matmul_precision() == MatmulPrecision::kHigh, {}};
  for (size_t part = 0; part < 3; ++part) problem.alignment[part] = std::min<int64_t>(alignment_of(c.data[part]), 16);
  problem.alignment[3] = std::min<int64_t>(alignment_of(c.bias), 16);
  problem.deterministic = cudnn_deterministic();
  Plan& plan = of_this_thread<ConvolutionPlans>().get(key_of(problem), handle, problem, cudnn_benchmark());
  if (!plan) return false;
  plan.run(handle, c);
  return true;
}

}  // namespace reel::cuda
