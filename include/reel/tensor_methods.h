#pragma once
#include <concepts>
#include <optional>
#include <vector>

#include "reel/types.h"

#pragma GCC visibility push(default)
/// The ops that are also members of Tensor.
namespace reel {

class Tensor;
struct Bound;
struct MinMax;
struct TensorIndex;
struct ValuesIndices;
enum class Reduce;

/// Options of `to` and `copy_`.
struct CopyOptions {
  /// Queues a copy between pinned memory (Tensor::pin_memory) and a GPU on the current stream, and does not wait for
  /// it. Until it is done (see Event, Stream::synchronize and cuda::synchronize) the host must not change the source
  /// nor read the result. to(kCPU) returns a pinned tensor then. Other copies ignore this option.
  bool non_blocking = false;
};

/// The ops that are also members of Tensor: x.sum(1) is sum(x, 1), under PyTorch's name, for the functions of
/// reel/ops/*.h and reel/random.h that PyTorch has as members, and their in-place twins, x.add_(y).
///
/// A member has the parameters and defaults of its function without the first tensor, and means the same: what it
/// computes, its shapes, dtypes and errors are documented there. test/ops/methods.cpp compares the two.
class TensorMethods {
 public:
  // ---- Elementwise arithmetic and functions (ops/pointwise.h, ops/activation.h)
  ///@{
  /// The function of the same name, of this tensor and the arguments.
  Tensor add(const Tensor& b) const;
  Tensor add(const Tensor& b, Scalar alpha) const;
  Tensor sub(const Tensor& b) const;
  Tensor sub(const Tensor& b, Scalar alpha) const;
  Tensor mul(const Tensor& b) const;
  Tensor div(const Tensor& b) const;
  Tensor pow(const Tensor& exponent) const;
  Tensor maximum(const Tensor& b) const;
  Tensor minimum(const Tensor& b) const;
  Tensor fmod(const Tensor& b) const;
  Tensor remainder(const Tensor& b) const;
  Tensor floor_divide(const Tensor& b) const;
  Tensor float_power(const Tensor& exponent) const;
  Tensor hypot(const Tensor& b) const;
  Tensor atan2(const Tensor& x) const;
  Tensor logaddexp(const Tensor& b) const;
  Tensor xlogy(const Tensor& y) const;
  Tensor lerp(const Tensor& end, const Tensor& weight) const;
  Tensor addcmul(const Tensor& a, const Tensor& b, Scalar value = 1) const;
  Tensor addcdiv(const Tensor& a, const Tensor& b, Scalar value = 1) const;
  Tensor clamp(const Bound& min) const;
  Tensor clamp(const Bound& min, const Bound& max) const;
  Tensor nan_to_num(double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {}) const;
  Tensor where(const Tensor& condition, const Tensor& b) const;  ///< where(condition, x, b)
  Tensor neg() const;
  Tensor abs() const;
  Tensor sign() const;
  Tensor exp() const;
  Tensor expm1() const;
  Tensor log() const;
  Tensor log1p() const;
  Tensor sqrt() const;
  Tensor rsqrt() const;
  Tensor square() const;
  Tensor reciprocal() const;
  Tensor sin() const;
  Tensor cos() const;
  Tensor tan() const;
  Tensor asin() const;
  Tensor acos() const;
  Tensor atan() const;
  Tensor sinh() const;
  Tensor cosh() const;
  Tensor tanh() const;
  Tensor asinh() const;
  Tensor acosh() const;
  Tensor atanh() const;
  Tensor exp2() const;
  Tensor log2() const;
  Tensor log10() const;
  Tensor logit(std::optional<double> eps = {}) const;
  Tensor sigmoid() const;
  Tensor erf() const;
  Tensor erfc() const;
  Tensor lgamma() const;
  Tensor digamma() const;
  Tensor polygamma(int64_t n) const;  ///< polygamma(n, x)
  Tensor floor() const;
  Tensor ceil() const;
  Tensor round() const;
  Tensor trunc() const;
  Tensor frac() const;
  Tensor relu() const;
  Tensor prelu(const Tensor& weight) const;
  Tensor hardshrink(double lambda = 0.5) const;
  Tensor softmax(int64_t dim) const;
  Tensor log_softmax(int64_t dim) const;
  ///@}

  // ---- Comparison, logic and bits (ops/pointwise.h)
  ///@{
  /// The function of the same name, of this tensor and the arguments.
  Tensor eq(const Tensor& b) const;
  Tensor ne(const Tensor& b) const;
  Tensor lt(const Tensor& b) const;
  Tensor le(const Tensor& b) const;
  Tensor gt(const Tensor& b) const;
  Tensor ge(const Tensor& b) const;
  Tensor logical_and(const Tensor& b) const;
  Tensor logical_or(const Tensor& b) const;
  Tensor logical_xor(const Tensor& b) const;
  Tensor logical_not() const;
  Tensor isnan() const;
  Tensor isinf() const;
  Tensor isfinite() const;
  Tensor isclose(const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  bool allclose(const Tensor& b, double rtol = 1e-5, double atol = 1e-8, bool equal_nan = false) const;
  bool equal(const Tensor& b) const;
  Tensor bitwise_and(const Tensor& b) const;
  Tensor bitwise_or(const Tensor& b) const;
  Tensor bitwise_xor(const Tensor& b) const;
  Tensor bitwise_not() const;
  Tensor bitwise_left_shift(const Tensor& places) const;
  Tensor bitwise_right_shift(const Tensor& places) const;
  ///@}

  // ---- Reductions and running results (ops/reduce.h, ops/scan.h)
  ///@{
  /// The function of the same name, of this tensor and the arguments.
  Tensor sum(const Dims& dims = {}, bool keepdim = false) const;
  Tensor mean(const Dims& dims = {}, bool keepdim = false) const;
  Tensor nansum(const Dims& dims = {}, bool keepdim = false) const;
  Tensor nanmean(const Dims& dims = {}, bool keepdim = false) const;
  Tensor count_nonzero(const Dims& dims = {}) const;
  Tensor prod() const;
  Tensor prod(int64_t dim, bool keepdim = false) const;
  Tensor max() const;
  Tensor min() const;
  ValuesIndices max(int64_t dim, bool keepdim = false) const;
  ValuesIndices min(int64_t dim, bool keepdim = false) const;
  template <std::floating_point T>
  ValuesIndices max(T other, bool = false) const = delete;  // of two numbers or tensors: maximum, minimum
  template <std::floating_point T>
  ValuesIndices min(T other, bool = false) const = delete;
  Tensor amax(const Dims& dims = {}, bool keepdim = false) const;
  Tensor amin(const Dims& dims = {}, bool keepdim = false) const;
  MinMax aminmax(const Dims& dims = {}, bool keepdim = false) const;
  Tensor argmax(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor argmin(std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor var(const Dims& dims = {}, double correction = 1, bool keepdim = false) const;
  Tensor std(const Dims& dims = {}, double correction = 1, bool keepdim = false) const;
  template <std::same_as<bool> B>  // a bool is no correction
  Tensor var(const Dims& dims, B, bool = false) const = delete;
  template <std::same_as<bool> B>
  Tensor std(const Dims& dims, B, bool = false) const = delete;
  Tensor cov(double correction = 1) const;
  Tensor corrcoef() const;
  Tensor norm(double p = 2, const Dims& dims = {}, bool keepdim = false) const;
  Tensor renorm(double p, int64_t dim, double max_norm) const;
  Tensor logsumexp(const Dims& dims = {}, bool keepdim = false) const;
  Tensor any(const Dims& dims = {}, bool keepdim = false) const;
  Tensor all(const Dims& dims = {}, bool keepdim = false) const;
  Tensor trace() const;
  Tensor cross(const Tensor& b, int64_t dim = -1) const;
  Tensor cumsum(int64_t dim) const;
  Tensor cumprod(int64_t dim) const;
  ValuesIndices cummax(int64_t dim) const;
  ValuesIndices cummin(int64_t dim) const;
  Tensor logcumsumexp(int64_t dim) const;
  Tensor diff(int64_t n = 1, int64_t dim = -1) const;
  ///@}

  // ---- Products (ops/product.h)
  ///@{
  /// The function of the same name, of this tensor and the arguments.
  Tensor matmul(const Tensor& b) const;
  Tensor mm(const Tensor& b) const;
  Tensor bmm(const Tensor& b) const;
  Tensor mv(const Tensor& x) const;
  Tensor dot(const Tensor& b) const;
  Tensor outer(const Tensor& b) const;
  Tensor inner(const Tensor& b) const;
  Tensor kron(const Tensor& b) const;
  Tensor addmm(const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1) const;
  Tensor baddbmm(const Tensor& a, const Tensor& b, Scalar beta = 1, Scalar alpha = 1) const;
  ///@}

  // ---- Splitting and rearranging (ops/join.h, ops/rearrange.h)
  ///@{
  /// The function of the same name, of this tensor and the arguments.
  std::vector<Tensor> split(int64_t size, int64_t dim = 0) const;
  std::vector<Tensor> split(const std::vector<int64_t>& sizes, int64_t dim = 0) const;
  std::vector<Tensor> chunk(int64_t chunks, int64_t dim = 0) const;
  std::vector<Tensor> tensor_split(int64_t sections, int64_t dim = 0) const;
  std::vector<Tensor> tensor_split(const std::vector<int64_t>& starts, int64_t dim = 0) const;
  std::vector<Tensor> unbind(int64_t dim = 0) const;
  Tensor unflatten(int64_t dim, const Shape& sizes) const;
  Tensor ravel() const;
  Tensor swapaxes(int64_t dim0, int64_t dim1) const;
  Tensor swapdims(int64_t dim0, int64_t dim1) const;
  Tensor movedim(const Dims& source, const Dims& destination) const;
  Tensor broadcast_to(const Shape& shape) const;
  Tensor diagonal(int64_t offset = 0, int64_t dim0 = 0, int64_t dim1 = 1) const;
  Tensor flip(const Dims& dims) const;
  Tensor fliplr() const;
  Tensor flipud() const;
  Tensor rot90(int64_t k = 1, const Dims& dims = {0, 1}) const;
  Tensor roll(int64_t shift, int64_t dim) const;
  Tensor repeat(const Shape& repeats) const;
  Tensor tile(const Shape& repeats) const;
  Tensor repeat_interleave(int64_t repeats, std::optional<int64_t> dim = {}) const;
  Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> dim = {}) const;
  Tensor tril(int64_t diagonal = 0) const;
  Tensor triu(int64_t diagonal = 0) const;
  Tensor diag(int64_t diagonal = 0) const;
  ///@}

  // ---- Indexing, sorting and counting (ops/index.h, ops/sort.h)
  ///@{
  /// The function of the same name, of this tensor and the arguments.
  Tensor index_select(int64_t dim, const Tensor& ids) const;
  Tensor index_add(int64_t dim, const Tensor& ids, const Tensor& source, Scalar alpha = 1) const;
  Tensor index_copy(int64_t dim, const Tensor& ids, const Tensor& source) const;
  Tensor index_fill(int64_t dim, const Tensor& ids, const Tensor& value) const;
  Tensor index_put(const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate = false) const;
  Tensor gather(int64_t dim, const Tensor& index) const;
  Tensor scatter(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor scatter_add(int64_t dim, const Tensor& index, const Tensor& source) const;
  Tensor scatter_reduce(int64_t dim, const Tensor& index, const Tensor& source, Reduce reduce,
                        bool include_self = true) const;
  Tensor take_along_dim(const Tensor& index, int64_t dim) const;
  Tensor take(const Tensor& index) const;
  Tensor masked_select(const Tensor& mask) const;
  Tensor masked_fill(const Tensor& mask, const Tensor& value) const;
  Tensor masked_scatter(const Tensor& mask, const Tensor& source) const;
  Tensor nonzero() const;
  Tensor argwhere() const;
  Tensor select_scatter(const Tensor& source, int64_t dim, int64_t index) const;
  Tensor slice_scatter(const Tensor& source, int64_t dim, std::optional<int64_t> start = {},
                       std::optional<int64_t> stop = {}, int64_t step = 1) const;
  Tensor diagonal_scatter(const Tensor& source, int64_t offset = 0, int64_t dim0 = 0, int64_t dim1 = 1) const;
  ValuesIndices sort(int64_t dim = -1, bool descending = false) const;
  Tensor argsort(int64_t dim = -1, bool descending = false) const;
  ValuesIndices topk(int64_t k, int64_t dim = -1, bool largest = true) const;
  ValuesIndices kthvalue(int64_t k, int64_t dim = -1, bool keepdim = false) const;
  ValuesIndices median(int64_t dim, bool keepdim = false) const;
  Tensor median() const;
  ValuesIndices mode(int64_t dim = -1, bool keepdim = false) const;
  Tensor quantile(double q, std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor quantile(const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false) const;
  Tensor histc(int64_t bins = 100, double min = 0, double max = 0) const;
  ///@}

  // ---- Random outcomes (random.h)
  ///@{
  /// The function of the same name, of this tensor and the arguments.
  Tensor bernoulli() const;
  Tensor multinomial(int64_t num_samples, bool replacement = false) const;
  ///@}

  // ---- In place
  ///@{
  /// The function of the name without the underscore (or the operator): its result is written into this tensor, which
  /// is returned. The shape and dtype stay; the operand is broadcast and cast to this dtype, and throws if that would
  /// turn a float operand into an integer. Differentiable where the function is; a leaf that requires grad may be
  /// changed only under no_grad.
  Tensor& add_(const Tensor& b);
  Tensor& add_(const Tensor& b, Scalar alpha);
  Tensor& sub_(const Tensor& b);
  Tensor& sub_(const Tensor& b, Scalar alpha);
  Tensor& mul_(const Tensor& b);
  Tensor& div_(const Tensor& b);
  Tensor& operator+=(const Tensor& b) { return add_(b); }
  Tensor& operator-=(const Tensor& b) { return sub_(b); }
  Tensor& operator*=(const Tensor& b) { return mul_(b); }
  Tensor& operator/=(const Tensor& b) { return div_(b); }
  Tensor& pow_(const Tensor& exponent);
  Tensor& fmod_(const Tensor& b);
  Tensor& remainder_(const Tensor& b);
  Tensor& floor_divide_(const Tensor& b);
  Tensor& lerp_(const Tensor& end, const Tensor& weight);
  Tensor& addcmul_(const Tensor& a, const Tensor& b, Scalar value = 1);
  Tensor& addcdiv_(const Tensor& a, const Tensor& b, Scalar value = 1);
  Tensor& neg_();
  Tensor& abs_();
  Tensor& sign_();
  Tensor& exp_();
  Tensor& expm1_();
  Tensor& log_();
  Tensor& log1p_();
  Tensor& sqrt_();
  Tensor& rsqrt_();
  Tensor& square_();
  Tensor& reciprocal_();
  Tensor& sin_();
  Tensor& cos_();
  Tensor& tan_();
  Tensor& asin_();
  Tensor& acos_();
  Tensor& atan_();
  Tensor& exp2_();
  Tensor& log2_();
  Tensor& log10_();
  Tensor& tanh_();
  Tensor& sigmoid_();
  Tensor& erf_();
  Tensor& relu_();
  Tensor& leaky_relu_(double negative_slope = 0.01);
  Tensor& elu_(double alpha = 1.0);
  Tensor& silu_();
  Tensor& floor_();
  Tensor& ceil_();
  Tensor& round_();
  Tensor& trunc_();
  Tensor& frac_();
  Tensor& clamp_(const Bound& min);
  Tensor& clamp_(const Bound& min, const Bound& max);
  Tensor& nan_to_num_(double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {});
  Tensor& masked_fill_(const Tensor& mask, const Tensor& value);
  Tensor& index_add_(int64_t dim, const Tensor& ids, const Tensor& source, Scalar alpha = 1);
  Tensor& index_copy_(int64_t dim, const Tensor& ids, const Tensor& source);
  Tensor& index_fill_(int64_t dim, const Tensor& ids, const Tensor& value);
  Tensor& index_put_(const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate = false);
  Tensor& scatter_(int64_t dim, const Tensor& index, const Tensor& source);
  Tensor& scatter_add_(int64_t dim, const Tensor& index, const Tensor& source);
  Tensor& scatter_reduce_(int64_t dim, const Tensor& index, const Tensor& source, Reduce reduce,
                          bool include_self = true);
  Tensor& masked_scatter_(const Tensor& mask, const Tensor& source);
  ///@}

  // ---- In place: values that do not depend on the old ones, which get gradient 0
  ///@{
  Tensor& copy_(const Tensor& source, CopyOptions options = {});  ///< The values of source, broadcast and cast.
  Tensor& fill_(Scalar value);                                    ///< An Error if the dtype cannot hold the value.
  Tensor& zero_() { return fill_(0); }                            ///< Zeros.
  Tensor& uniform_(double low = 0, double high = 1);              ///< Uniform in [low, high).
  Tensor& normal_(double mean = 0, double std = 1);               ///< Normal with this mean and standard deviation.
  Tensor& log_normal_(double mean = 1, double std = 2);           ///< exp of a normal number with these parameters.
  Tensor& exponential_(double lambda = 1);                        ///< Density lambda exp(-lambda x).
  Tensor& cauchy_(double median = 0, double sigma = 1);           ///< Density sigma / (π (sigma² + (x - median)²)).
  Tensor& geometric_(double p);                                   ///< Trials up to the first success, 1, 2, …
  Tensor& bernoulli_();                                           ///< 1 with probability 1/2, otherwise 0.
  Tensor& bernoulli_(const Tensor& p);                            ///< 1 with probability p (broadcast), otherwise 0.
  Tensor& random_(int64_t low, int64_t high);                     ///< Integers, low ≤ x < high.
                                                                  ///@}

 protected:
  TensorMethods() = default;  // only as the base of a Tensor, which methods cast to
  ~TensorMethods() = default;
};

}  // namespace reel
#pragma GCC visibility pop
