#include "cuda/dnn_attention.h"

#include <algorithm>
#include <deque>
#include <sstream>

#include "cuda/attention_key.h"
#include "cuda/dnn.h"
#include "cuda/dnn_handle.h"
#include "cuda/runtime.h"

namespace reel::cuda {
namespace {

constexpr size_t kMaxPlans = 256;        // per thread and device
constexpr float kMinus = -1073741824.f;  // the score of what is hidden: its weight is 0

using Dims = std::vector<int64_t>;

// ---- graphs ---------------------------------------------------------------------------------------------------------

/// Operations and their tensors. After the first refusal nothing is added, and there is no graph.
class GraphMaker {
 public:
  explicit GraphMaker(const RaggedAttention& a)
      : a_(a),
        type_(a.dtype == kFloat16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16),
        queries_(a.queries / a.sequences),
        keys_(a.keys / a.sequences) {}

  /// The rows that a sequence has on one side.
  struct Side {
    int64_t heads, length;
  };
  Side queries() const { return {a_.heads, queries_}; }
  Side keys() const { return {a_.kv_heads, keys_}; }  // and values
  /// A tensor of the attention's; its elements lie in memory with these steps.
  const Descriptor& rows(AttentionPart part, const Side& side, const RaggedAttention::Steps& steps) {
    return tensor(type_, {a_.sequences, side.heads, side.length, a_.width}, {steps[0], steps[1], steps[2], 1}, part);
  }
  /// … with rows and columns exchanged.
  const Descriptor& columns(AttentionPart part, const Side& side, const RaggedAttention::Steps& steps) {
    return tensor(type_, {a_.sequences, side.heads, a_.width, side.length}, {steps[0], steps[1], 1, steps[2]}, part);
  }
  /// The gradient of keys or values: a product for each head of the queries, summed over those that share a key's.
  void grad_of_keys(const Descriptor& a, const Descriptor& b, AttentionPart part, const RaggedAttention::Steps& steps) {
    const Descriptor& grad = rows(part, keys(), steps);
    if (a_.heads == a_.kv_heads) return product(kOverQueries, a, b, grad), void();
    const Dims sizes{a_.sequences, a_.heads, keys_, a_.width};
    const Descriptor& all = tensor(type_, sizes, dense(sizes), part == kGradKey ? kAllGradKey : kAllGradValue);
    sum(product(kOverQueries, a, b, all), grad);
  }
  /// A float32 for each query.
  const Descriptor& per_query(AttentionPart part) {
    return tensor(CUDNN_DATA_FLOAT, per_query_, dense(per_query_), part);
  }
  const Descriptor& number(AttentionPart part) {
    return tensor(CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, part, true);
  }
  /// Of the sequences' queries or keys.
  const Descriptor& lengths(AttentionPart part) {
    return tensor(CUDNN_DATA_INT32, {a_.sequences, 1, 1, 1}, {1, 1, 1, 1}, part);
  }
  const Descriptor& sum_of_query_grads() {
    const Dims sizes{a_.sequences, a_.heads, queries_, a_.width};
    return tensor(CUDNN_DATA_FLOAT, sizes, dense(sizes), kSumGradQuery, false, true);
  }

  // Values that stay on the chip. All of `like`'s shape unless said otherwise.
  /// What a product of a and b is, or sums over.
  enum Product { kScores, kOverKeys, kOverQueries };
  const Descriptor& product(const Descriptor& a, const Descriptor& b) {
    const Descriptor& c = scores(CUDNN_DATA_FLOAT);
    return product(kScores, a, b, c);
  }
  /// cuDNN learns from its products, not from the masks, how long sequences are: without the lengths here, it takes all
  /// as the longest ones.
  const Descriptor& product(Product kind, const Descriptor& a, const Descriptor& b, const Descriptor& c) {
    Descriptor form(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    form.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    Descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    check(form.finalize());
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c)
        .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, form);
    if (a_.batch->key_lengths) {
      const Descriptor &queries = lengths(kQueryLengths), &keys = lengths(kKeyLengths);
      operation.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, kind == kOverQueries ? keys : queries);
      if (kind == kScores)
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, keys);
      else
        operation.set(CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, kind == kOverKeys ? keys : queries);
    }
    return add(std::move(operation)), c;
  }
  const Descriptor& scores(cudnnDataType_t type) {
    const Dims sizes{a_.sequences, a_.heads, queries_, keys_};
    return tensor(type, sizes, dense(sizes));
  }
  const Descriptor& of_queries() { return tensor(CUDNN_DATA_FLOAT, per_query_, dense(per_query_)); }
  const Descriptor& like_query() {
    const Dims sizes{a_.sequences, a_.heads, queries_, a_.width};
    return tensor(CUDNN_DATA_FLOAT, sizes, dense(sizes));
  }
  /// x [queries, keys] as [keys, queries].
  const Descriptor& turned(const Descriptor& x) {
    const int64_t all = a_.heads * queries_ * keys_;
    const Descriptor& y = tensor(type_, {a_.sequences, a_.heads, keys_, queries_}, {all, queries_ * keys_, 1, keys_});
    Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x).set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    return add(std::move(operation)), y;
  }
  const Descriptor& sum(const Descriptor& x, const Descriptor& y, cudnnReduceTensorOp_t how = CUDNN_REDUCE_TENSOR_ADD) {
    Descriptor form(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    form.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, how)
        .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    check(form.finalize());
    Descriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, form);
    return add(std::move(operation)), y;
  }
  struct Pointwise {
    const Descriptor *b = nullptr, *t = nullptr;  // the second and the third operand
    cudnnDataType_t type = CUDNN_DATA_FLOAT;      // that is computed in
    int64_t axis = -1;
  };
  const Descriptor& pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor& y,
                              const Pointwise& more) {
    Descriptor form(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    form.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, more.type);
    if (more.axis >= 0) form.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, more.axis);
    check(form.finalize());
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, form).set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (more.b) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *more.b);
    if (more.t) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *more.t);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    return add(std::move(operation)), y;
  }
  /// x op b in float32, as large as the scores.
  const Descriptor& combine(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor& b) {
    return pointwise(mode, x, scores(CUDNN_DATA_FLOAT), {.b = &b});
  }

  /// The scaled scores; what is hidden is kMinus.
  const Descriptor& masked_scores(const Descriptor& query, const Descriptor& key_turned, const Descriptor& scale) {
    const Descriptor* now = &combine(CUDNN_POINTWISE_MUL, product(query, key_turned), scale);
    const auto index = [&](int64_t axis) -> const Descriptor& {
      return pointwise(CUDNN_POINTWISE_GEN_INDEX, *now, scores(CUDNN_DATA_INT32),
                       {.type = CUDNN_DATA_INT32, .axis = axis});
    };
    const auto hide_but = [&](const Descriptor& seen) {
      const Descriptor& hidden = number(kHidden);
      now = &pointwise(CUDNN_POINTWISE_BINARY_SELECT, *now, scores(CUDNN_DATA_FLOAT), {.b = &hidden, .t = &seen});
    };
    if (a_.batch->key_lengths) {
      const auto within = [&](int64_t axis, AttentionPart part) -> const Descriptor& {
        return pointwise(CUDNN_POINTWISE_CMP_LT, index(axis), scores(CUDNN_DATA_BOOLEAN),
                         {.b = &lengths(part), .type = CUDNN_DATA_INT32});
      };
      const Descriptor &row = within(2, kQueryLengths), &column = within(3, kKeyLengths);
      hide_but(pointwise(CUDNN_POINTWISE_LOGICAL_AND, row, scores(CUDNN_DATA_BOOLEAN),
                         {.b = &column, .type = CUDNN_DATA_BOOLEAN}));
    }
    if (!a_.causal) return *now;
    const Descriptor &row = index(2), &column = index(3);
    hide_but(
        pointwise(CUDNN_POINTWISE_CMP_GE, row, scores(CUDNN_DATA_BOOLEAN), {.b = &column, .type = CUDNN_DATA_INT32}));
    return *now;
  }

  /// exp(scores - less), with a `less` for each query.
  const Descriptor& exponentials(const Descriptor& scores_in, const Descriptor& less) {
    return pointwise(CUDNN_POINTWISE_EXP, combine(CUDNN_POINTWISE_SUB, scores_in, less), scores(CUDNN_DATA_FLOAT), {});
  }

  std::optional<Descriptor> finish(const DnnTarget& target) {
    if (!good_) return {};
    std::vector<cudnnBackendDescriptor_t> raw;
    for (const Descriptor& operation : operations_) raw.push_back(operation.raw());
    return dnn_graph(target, raw);
  }

  cudnnDataType_t type() const { return type_; }

 private:
  static Dims dense(const Dims& sizes) {
    Dims strides(sizes.size(), 1);
    for (size_t d = sizes.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * sizes[d + 1];
    return strides;
  }
  void check(bool good) { good_ = good_ && good; }
  void add(Descriptor operation) {
    check(operation.finalize());
    operations_.push_back(std::move(operation));
  }
  /// Without a part: one that never lies in memory.
  const Descriptor& tensor(cudnnDataType_t type, const Dims& sizes, const Dims& strides, int64_t part = 0,
                           bool by_value = false, bool reordered = false) {
    Descriptor& result = tensors_.emplace_back(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    result.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type)
        .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
        .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
        .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, part ? part : ++last_virtual_)
        .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, int64_t{16});
    if (!part) result.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, true);
    if (by_value) result.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, true);
    if (reordered)
      result.set(CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TYPE_TENSOR_REORDERING_MODE, CUDNN_TENSOR_REORDERING_F16x16);
    check(result.finalize());
    return result;
  }

  const RaggedAttention& a_;
  const cudnnDataType_t type_;
  const int64_t queries_, keys_;
  const Dims per_query_{a_.sequences, a_.heads, queries_, 1};
  std::deque<Descriptor> tensors_, operations_;  // which stay where they are
  int64_t last_virtual_ = 1000;
  bool good_ = true;
};

std::optional<Descriptor> forward_graph(const DnnTarget& target, const RaggedAttention& a) {
  GraphMaker g(a);
  const auto& steps = *a.batch;
  const Descriptor& query = g.rows(kQuery, g.queries(), steps.query);
  const Descriptor& key = g.columns(kKeyTurned, g.keys(), steps.key);
  const Descriptor& value = g.rows(kValue, g.keys(), steps.value);
  const Descriptor& scores = g.masked_scores(query, key, g.number(kScale));
  const Descriptor& most = g.sum(scores, g.of_queries(), CUDNN_REDUCE_TENSOR_MAX);
  const Descriptor& e = g.exponentials(scores, most);
  const Descriptor& total = g.sum(e, g.of_queries());
  // Without these there is no engine.
  const Descriptor& log = g.pointwise(CUDNN_POINTWISE_LOG, total, g.of_queries(), {});
  g.pointwise(CUDNN_POINTWISE_ADD, most, g.per_query(kLogSums), {.b = &log});
  const Descriptor& weights = g.pointwise(CUDNN_POINTWISE_DIV, e, g.scores(g.type()), {.b = &total});
  g.product(g.kOverKeys, weights, value, g.rows(kOutput, g.queries(), steps.y));
  return g.finish(target);
}

/// With p = exp(scores - log sums) and d = grad · y: the gradient of the scores is p (grad valueᵀ - d).
std::optional<Descriptor> backward_graph(const DnnTarget& target, const RaggedAttention& a) {
  GraphMaker g(a);
  const auto& steps = *a.batch;
  const Descriptor& query = g.rows(kQuery, g.queries(), steps.query);
  const Descriptor& key = g.rows(kKey, g.keys(), steps.key);
  const Descriptor& key_turned = g.columns(kKeyTurned, g.keys(), steps.key);
  const Descriptor& value_turned = g.columns(kValueTurned, g.keys(), steps.value);
  const Descriptor& output = g.rows(kOutput, g.queries(), steps.y);
  const Descriptor& grad = g.rows(kGrad, g.queries(), steps.grad);
  const Descriptor &log_sums = g.per_query(kLogSums), &scale = g.number(kScale), &one = g.number(kOne);

  const Descriptor& products = g.pointwise(CUDNN_POINTWISE_MUL, output, g.like_query(), {.b = &grad});
  const Descriptor& sums = g.sum(products, g.of_queries());
  const Descriptor& d = g.pointwise(CUDNN_POINTWISE_MUL, sums, g.per_query(kSum), {.b = &one});

  const Descriptor& p = g.exponentials(g.masked_scores(query, key_turned, scale), log_sums);
  g.grad_of_keys(g.turned(p), grad, kGradValue, steps.grad_value);

  const Descriptor& difference = g.combine(CUDNN_POINTWISE_SUB, g.product(grad, value_turned), d);
  const Descriptor& of_scores = g.pointwise(CUDNN_POINTWISE_MUL, g.combine(CUDNN_POINTWISE_MUL, difference, p),
                                            g.scores(g.type()), {.b = &scale});
  g.grad_of_keys(g.turned(of_scores), query, kGradKey, steps.grad_key);
  const Descriptor& sum = g.product(g.kOverKeys, of_scores, key, g.sum_of_query_grads());
  g.pointwise(CUDNN_POINTWISE_IDENTITY, sum, g.rows(kGradQuery, g.queries(), steps.grad_query), {});
  return g.finish(target);
}

}  // namespace

std::optional<Descriptor> attention_graph(const DnnTarget& target, const RaggedAttention& a, bool backward) {
  return backward ? backward_graph(target, a) : forward_graph(target, a);
}

// ---- plans ----------------------------------------------------------------------------------------------------------

namespace {

class Plan {
 public:
  Plan(cudnnHandle_t handle, const RaggedAttention& a, bool backward) {
    const DnnTarget target{handle, nullptr, &failure_};
    if (const std::optional<Descriptor> graph = attention_graph(target, a, backward))
      for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
        for (const Descriptor& config : dnn_configs(target, *graph, mode)) {
          if (plan_) continue;
          plan_ = dnn_plan(target, config);
        }
    if (plan_) {
      workspace_ = workspace_of(*plan_);
      return;
    }
    std::ostringstream text;
    text << "cuDNN has no plan for " << (backward ? "the gradients of " : "") << "attention in " << name_of(a.dtype)
         << " of " << a.sequences << " x " << a.heads << " heads (" << a.kv_heads << " of keys), "
         << a.queries / a.sequences << " queries and " << a.keys / a.sequences << " keys of " << a.width;
    if (failure_ != CUDNN_STATUS_SUCCESS) text << " (" << cudnnGetErrorString(failure_) << ")";
    note_fallback(text.str());
  }
  explicit operator bool() const { return plan_.has_value(); }
  bool lasts() const { return plan_ || failure_ == CUDNN_STATUS_SUCCESS; }

  void run(cudnnHandle_t handle, const RaggedAttention& a, bool backward) const {
    float scale = static_cast<float>(a.scale), one = 1, hidden = kMinus;
    const int64_t rows = a.queries * a.heads, elements = backward ? rows * a.width : 0;
    const Scratch<float> sums(backward || !a.log_sums ? rows : 0), query_grads(elements);
    const int64_t unsummed = backward && a.heads != a.kv_heads ? a.keys * a.heads * a.width : 0;
    const Scratch<uint16_t> key_grads(unsummed), value_grads(unsummed);
    if (backward) CUDA_CHECK(cudaMemsetAsync(query_grads, 0, static_cast<size_t>(elements) * sizeof(float), stream()));
    std::array<int64_t, 20> ids;
    std::array<const void*, 20> data;
    size_t count = 0;
    const auto add = [&](AttentionPart part, const void* at) { ids[count] = part, data[count++] = at; };
    add(kQuery, a.query), add(kKeyTurned, a.key), add(backward ? kValueTurned : kValue, a.value), add(kOutput, a.y);
    add(kLogSums, a.log_sums ? a.log_sums : sums.data()), add(kScale, &scale);
    if (a.causal || a.batch->key_lengths) add(kHidden, &hidden);
    if (a.batch->key_lengths) add(kQueryLengths, a.batch->query_lengths), add(kKeyLengths, a.batch->key_lengths);
    if (backward) {
      add(kKey, a.key), add(kGrad, a.grad), add(kSum, sums.data()), add(kSumGradQuery, query_grads.data());
      if (unsummed) add(kAllGradKey, key_grads.data()), add(kAllGradValue, value_grads.data());
      add(kGradQuery, a.grad_query), add(kGradKey, a.grad_key), add(kGradValue, a.grad_value), add(kOne, &one);
    }
    const Scratch<char> workspace(std::max<int64_t>(workspace_, 1));
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids.data(), static_cast<int64_t>(count))
        .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data.data(), static_cast<int64_t>(count))
        .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, static_cast<void*>(workspace.data()));
    REEL_CHECK(pack.finalize(), "cuDNN refuses the data of attention");
    CUDNN_CHECK(cudnnBackendExecute(handle, plan_->raw(), pack.raw()));
  }

 private:
  std::optional<Descriptor> plan_;
  int64_t workspace_ = 0;
  cudnnStatus_t failure_ = CUDNN_STATUS_SUCCESS;
};

struct AttentionPlans : Plans<std::tuple_size_v<AttentionKey>, Plan> {
  AttentionPlans() : Plans(kMaxPlans) {}
};

}  // namespace

bool cudnn_sdpa(const RaggedAttention& a, bool backward) {
  const cudnnHandle_t handle = DnnHandle::get();
  const Plan& plan = of_this_thread<AttentionPlans>().get(key_of(a, backward), handle, a, backward);
  if (plan) plan.run(handle, a, backward);
  return static_cast<bool>(plan);
}

}  // namespace reel::cuda
