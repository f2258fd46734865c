#include "cuda/dnn.h"

#include <algorithm>
#include <sstream>

#include "cuda/dnn_plan.h"
#include "cuda/plans.h"
#include "cuda/runtime.h"
#include "lib/kernels/convolution.h"
#include "reel/precision.h"

// Convolutions by cuDNN: plans are chosen by its heuristics, without timing engines, so the same program runs the same
// engines (and gets the same bits) each time.
namespace reel::cuda {
namespace {

constexpr size_t kMaxPlans = 512;                    // per thread and device
constexpr int64_t kMaxWorkspace = int64_t{1} << 30;  // bytes; engines that need more are passed over

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char why[512] = "";
  cudnnGetLastErrorString(why, sizeof why);
  reel::detail::fail("cuDNN: ", cudnnGetErrorString(status), " from ", call, ". ", why);
}
#define CUDNN_CHECK(call) check(call, #call)

/// Where there is no plan; `failure`: other than a refusal.
void report(const DnnProblem& problem, cudnnStatus_t failure) {
  static constexpr const char* kWhat[] = {"the gradient of x of", "the gradient of the weight of", ""};
  const Convolution& c = problem.conv;
  std::ostringstream text;
  text << "cuDNN has no plan for " << kWhat[problem.wanted] << " a convolution of " << name_of(c.dtype) << " of " << c.n
       << " x " << c.in << " channels of " << c.x_size[0] << " x " << c.x_size[1] << " x " << c.x_size[2] << " with "
       << c.out << " kernels of " << c.kernel[0] << " x " << c.kernel[1] << " x " << c.kernel[2];
  if (failure != CUDNN_STATUS_SUCCESS) text << " (" << cudnnGetErrorString(failure) << ")";
  note_fallback(text.str());
}

/// The first engine, in the order of cuDNN's heuristics, for which an execution plan can be built within kMaxWorkspace.
/// Empty if there is none.
class Plan {
 public:
  Plan(cudnnHandle_t handle, const DnnProblem& problem) {
    find(handle, problem);
    if (!plan_) report(problem, failure_);
  }
  explicit operator bool() const { return plan_.has_value(); }
  /// An empty plan is remembered unless something has failed, which need not be so the next time.
  bool lasts() const { return plan_ || failure_ == CUDNN_STATUS_SUCCESS; }

  void run(cudnnHandle_t handle, const Convolution& c) const {
    const Scratch<char> workspace(std::max<int64_t>(workspace_, 1));
    Descriptor data(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    data.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, kDnnIds, 3)
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, c.data.data(), 3)
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, static_cast<void*>(workspace.data()));
    REEL_CHECK(data.finalize(), "cuDNN refuses the data of a convolution");
    CUDNN_CHECK(cudnnBackendExecute(handle, plan_->raw(), data.raw()));
  }

 private:
  void find(cudnnHandle_t handle, const DnnProblem& problem) {
    const DnnTarget target{handle, nullptr, &failure_};
    const std::optional<Descriptor> graph = dnn_graph(target, problem);
    if (!graph) return;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
      for (Descriptor& engine : dnn_engines(target, problem, *graph, mode)) {
        plan_ = dnn_plan(target, engine);
        if (plan_) workspace_ = workspace_of(*plan_);
        if (plan_ && workspace_ <= kMaxWorkspace) return;
        plan_.reset();
      }
  }

  std::optional<Descriptor> plan_;
  int64_t workspace_ = 0;
  cudnnStatus_t failure_ = CUDNN_STATUS_SUCCESS;
};

using Key = PlanKey<26>;
Key key_of(const DnnProblem& problem) {
  const Convolution& c = problem.conv;
  const auto& at = problem.alignment;
  Key key{problem.wanted | static_cast<int64_t>(c.dtype) << 8 | problem.tf32 << 16,
          at[0] | at[1] << 16 | at[2] << 32,
          c.n,
          c.in,
          c.out,
          c.groups};
  auto to = key.begin() + 6;
  for (const auto* list : {&c.x_size, &c.kernel, &c.y_size, &c.stride, &c.dilation, &c.before})
    to = std::copy(list->begin(), list->end(), to);
  return key;
}

struct Library {
  cudnnHandle_t handle;
  Library() { CUDNN_CHECK(cudnnCreate(&handle)); }
  cudaStream_t stream = nullptr;
  Plans<std::tuple_size_v<Key>, Plan> plans{kMaxPlans};
};

}  // namespace

bool dnn_convolve(ConvPart wanted, const Convolution& c) {
  Library& library = of_this_thread<Library>();
  if (!dnn_can_state(c)) return false;
  if (library.stream != stream()) {
    CUDNN_CHECK(cudnnSetStream(library.handle, stream()));
    library.stream = stream();
  }
  DnnProblem problem{wanted, c, c.dtype == kFloat32 && matmul_precision() == MatmulPrecision::kHigh, {}};
  for (size_t part = 0; part < 3; ++part) problem.alignment[part] = std::min<int64_t>(alignment_of(c.data[part]), 16);
  const Plan& plan = library.plans.get(key_of(problem), library.handle, problem);
  if (!plan) return false;
  plan.run(library.handle, c);
  return true;
}

}  // namespace reel::cuda
