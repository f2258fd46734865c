// This file defines the members of Tensor that are functions, too: each only calls its function. They are out of line
// so that a program can call them which includes only reel/tensor.h. The in-place ones, which do more, are in
// inplace.cpp, index.cpp, index_list.cpp and random.cpp.
#include "lib/ops/internal.h"
#include "reel/random.h"

namespace reel {

// ---- elementwise arithmetic and functions ---------------------------------------------------------------------------

Tensor TensorMethods::add(const Tensor& b) const { return reel::add(self(this), b); }
Tensor TensorMethods::add(const Tensor& b, Scalar alpha) const { return reel::add(self(this), b, alpha); }
Tensor TensorMethods::sub(const Tensor& b) const { return reel::sub(self(this), b); }
Tensor TensorMethods::sub(const Tensor& b, Scalar alpha) const { return reel::sub(self(this), b, alpha); }
Tensor TensorMethods::mul(const Tensor& b) const { return reel::mul(self(this), b); }
Tensor TensorMethods::div(const Tensor& b) const { return reel::div(self(this), b); }
Tensor TensorMethods::pow(const Tensor& exponent) const { return reel::pow(self(this), exponent); }
Tensor TensorMethods::maximum(const Tensor& b) const { return reel::maximum(self(this), b); }
Tensor TensorMethods::minimum(const Tensor& b) const { return reel::minimum(self(this), b); }
Tensor TensorMethods::fmod(const Tensor& b) const { return reel::fmod(self(this), b); }
Tensor TensorMethods::remainder(const Tensor& b) const { return reel::remainder(self(this), b); }
Tensor TensorMethods::floor_divide(const Tensor& b) const { return reel::floor_divide(self(this), b); }
Tensor TensorMethods::float_power(const Tensor& exponent) const { return reel::float_power(self(this), exponent); }
Tensor TensorMethods::hypot(const Tensor& b) const { return reel::hypot(self(this), b); }
Tensor TensorMethods::atan2(const Tensor& x) const { return reel::atan2(self(this), x); }
Tensor TensorMethods::logaddexp(const Tensor& b) const { return reel::logaddexp(self(this), b); }
Tensor TensorMethods::xlogy(const Tensor& y) const { return reel::xlogy(self(this), y); }
Tensor TensorMethods::lerp(const Tensor& end, const Tensor& weight) const {
  return reel::lerp(self(this), end, weight);
}
Tensor TensorMethods::addcmul(const Tensor& a, const Tensor& b, Scalar value) const {
  return reel::addcmul(self(this), a, b, value);
}
Tensor TensorMethods::addcdiv(const Tensor& a, const Tensor& b, Scalar value) const {
  return reel::addcdiv(self(this), a, b, value);
}
Tensor TensorMethods::clamp(const Bound& min) const { return reel::clamp(self(this), min); }
Tensor TensorMethods::clamp(const Bound& min, const Bound& max) const { return reel::clamp(self(this), min, max); }
Tensor TensorMethods::nan_to_num(double nan, std::optional<double> posinf, std::optional<double> neginf) const {
  return reel::nan_to_num(self(this), nan, posinf, neginf);
}
Tensor TensorMethods::where(const Tensor& condition, const Tensor& b) const {
  return reel::where(condition, self(this), b);
}
Tensor TensorMethods::neg() const { return reel::neg(self(this)); }
Tensor TensorMethods::abs() const { return reel::abs(self(this)); }
Tensor TensorMethods::sign() const { return reel::sign(self(this)); }
Tensor TensorMethods::exp() const { return reel::exp(self(this)); }
Tensor TensorMethods::expm1() const { return reel::expm1(self(this)); }
Tensor TensorMethods::log() const { return reel::log(self(this)); }
Tensor TensorMethods::log1p() const { return reel::log1p(self(this)); }
Tensor TensorMethods::sqrt() const { return reel::sqrt(self(this)); }
Tensor TensorMethods::rsqrt() const { return reel::rsqrt(self(this)); }
Tensor TensorMethods::square() const { return reel::square(self(this)); }
Tensor TensorMethods::reciprocal() const { return reel::reciprocal(self(this)); }
Tensor TensorMethods::sin() const { return reel::sin(self(this)); }
Tensor TensorMethods::cos() const { return reel::cos(self(this)); }
Tensor TensorMethods::tan() const { return reel::tan(self(this)); }
Tensor TensorMethods::asin() const { return reel::asin(self(this)); }
Tensor TensorMethods::acos() const { return reel::acos(self(this)); }
Tensor TensorMethods::atan() const { return reel::atan(self(this)); }
Tensor TensorMethods::sinh() const { return reel::sinh(self(this)); }
Tensor TensorMethods::cosh() const { return reel::cosh(self(this)); }
Tensor TensorMethods::tanh() const { return reel::tanh(self(this)); }
Tensor TensorMethods::asinh() const { return reel::asinh(self(this)); }
Tensor TensorMethods::acosh() const { return reel::acosh(self(this)); }
Tensor TensorMethods::atanh() const { return reel::atanh(self(this)); }
Tensor TensorMethods::exp2() const { return reel::exp2(self(this)); }
Tensor TensorMethods::log2() const { return reel::log2(self(this)); }
Tensor TensorMethods::log10() const { return reel::log10(self(this)); }
Tensor TensorMethods::logit(std::optional<double> eps) const { return reel::logit(self(this), eps); }
Tensor TensorMethods::sigmoid() const { return reel::sigmoid(self(this)); }
Tensor TensorMethods::erf() const { return reel::erf(self(this)); }
Tensor TensorMethods::erfc() const { return reel::erfc(self(this)); }
Tensor TensorMethods::lgamma() const { return reel::lgamma(self(this)); }
Tensor TensorMethods::digamma() const { return reel::digamma(self(this)); }
Tensor TensorMethods::polygamma(int64_t n) const { return reel::polygamma(n, self(this)); }
Tensor TensorMethods::floor() const { return reel::floor(self(this)); }
Tensor TensorMethods::ceil() const { return reel::ceil(self(this)); }
Tensor TensorMethods::round() const { return reel::round(self(this)); }
Tensor TensorMethods::trunc() const { return reel::trunc(self(this)); }
Tensor TensorMethods::frac() const { return reel::frac(self(this)); }
Tensor TensorMethods::relu() const { return reel::relu(self(this)); }
Tensor TensorMethods::prelu(const Tensor& weight) const { return reel::prelu(self(this), weight); }
Tensor TensorMethods::hardshrink(double lambda) const { return reel::hardshrink(self(this), lambda); }
Tensor TensorMethods::softmax(int64_t dim) const { return reel::softmax(self(this), dim); }
Tensor TensorMethods::log_softmax(int64_t dim) const { return reel::log_softmax(self(this), dim); }

// ---- comparison, logic and bits -------------------------------------------------------------------------------------

Tensor TensorMethods::eq(const Tensor& b) const { return reel::eq(self(this), b); }
Tensor TensorMethods::ne(const Tensor& b) const { return reel::ne(self(this), b); }
Tensor TensorMethods::lt(const Tensor& b) const { return reel::lt(self(this), b); }
Tensor TensorMethods::le(const Tensor& b) const { return reel::le(self(this), b); }
Tensor TensorMethods::gt(const Tensor& b) const { return reel::gt(self(this), b); }
Tensor TensorMethods::ge(const Tensor& b) const { return reel::ge(self(this), b); }
Tensor TensorMethods::logical_and(const Tensor& b) const { return reel::logical_and(self(this), b); }
Tensor TensorMethods::logical_or(const Tensor& b) const { return reel::logical_or(self(this), b); }
Tensor TensorMethods::logical_xor(const Tensor& b) const { return reel::logical_xor(self(this), b); }
Tensor TensorMethods::logical_not() const { return reel::logical_not(self(this)); }
Tensor TensorMethods::isnan() const { return reel::isnan(self(this)); }
Tensor TensorMethods::isinf() const { return reel::isinf(self(this)); }
Tensor TensorMethods::isfinite() const { return reel::isfinite(self(this)); }
Tensor TensorMethods::isclose(const Tensor& b, double rtol, double atol, bool equal_nan) const {
  return reel::isclose(self(this), b, rtol, atol, equal_nan);
}
bool TensorMethods::allclose(const Tensor& b, double rtol, double atol, bool equal_nan) const {
  return reel::allclose(self(this), b, rtol, atol, equal_nan);
}
bool TensorMethods::equal(const Tensor& b) const { return reel::equal(self(this), b); }
Tensor TensorMethods::bitwise_and(const Tensor& b) const { return reel::bitwise_and(self(this), b); }
Tensor TensorMethods::bitwise_or(const Tensor& b) const { return reel::bitwise_or(self(this), b); }
Tensor TensorMethods::bitwise_xor(const Tensor& b) const { return reel::bitwise_xor(self(this), b); }
Tensor TensorMethods::bitwise_not() const { return reel::bitwise_not(self(this)); }
Tensor TensorMethods::bitwise_left_shift(const Tensor& places) const {
  return reel::bitwise_left_shift(self(this), places);
}
Tensor TensorMethods::bitwise_right_shift(const Tensor& places) const {
  return reel::bitwise_right_shift(self(this), places);
}

// ---- reductions and running results ---------------------------------------------------------------------------------

Tensor TensorMethods::sum(const Dims& dims, bool keepdim) const { return reel::sum(self(this), dims, keepdim); }
Tensor TensorMethods::mean(const Dims& dims, bool keepdim) const { return reel::mean(self(this), dims, keepdim); }
Tensor TensorMethods::nansum(const Dims& dims, bool keepdim) const { return reel::nansum(self(this), dims, keepdim); }
Tensor TensorMethods::nanmean(const Dims& dims, bool keepdim) const { return reel::nanmean(self(this), dims, keepdim); }
Tensor TensorMethods::count_nonzero(const Dims& dims) const { return reel::count_nonzero(self(this), dims); }
Tensor TensorMethods::prod() const { return reel::prod(self(this)); }
Tensor TensorMethods::prod(int64_t dim, bool keepdim) const { return reel::prod(self(this), dim, keepdim); }
Tensor TensorMethods::max() const { return reel::max(self(this)); }
Tensor TensorMethods::min() const { return reel::min(self(this)); }
ValuesIndices TensorMethods::max(int64_t dim, bool keepdim) const { return reel::max(self(this), dim, keepdim); }
ValuesIndices TensorMethods::min(int64_t dim, bool keepdim) const { return reel::min(self(this), dim, keepdim); }
Tensor TensorMethods::amax(const Dims& dims, bool keepdim) const { return reel::amax(self(this), dims, keepdim); }
Tensor TensorMethods::amin(const Dims& dims, bool keepdim) const { return reel::amin(self(this), dims, keepdim); }
MinMax TensorMethods::aminmax(const Dims& dims, bool keepdim) const { return reel::aminmax(self(this), dims, keepdim); }
Tensor TensorMethods::argmax(std::optional<int64_t> dim, bool keepdim) const {
  return reel::argmax(self(this), dim, keepdim);
}
Tensor TensorMethods::argmin(std::optional<int64_t> dim, bool keepdim) const {
  return reel::argmin(self(this), dim, keepdim);
}
Tensor TensorMethods::var(const Dims& dims, double correction, bool keepdim) const {
  return reel::var(self(this), dims, correction, keepdim);
}
Tensor TensorMethods::std(const Dims& dims, double correction, bool keepdim) const {
  return reel::std(self(this), dims, correction, keepdim);
}
Tensor TensorMethods::cov(double correction) const { return reel::cov(self(this), correction); }
Tensor TensorMethods::corrcoef() const { return reel::corrcoef(self(this)); }
Tensor TensorMethods::norm(double p, const Dims& dims, bool keepdim) const {
  return reel::norm(self(this), p, dims, keepdim);
}
Tensor TensorMethods::renorm(double p, int64_t dim, double max_norm) const {
  return reel::renorm(self(this), p, dim, max_norm);
}
Tensor TensorMethods::logsumexp(const Dims& dims, bool keepdim) const {
  return reel::logsumexp(self(this), dims, keepdim);
}
Tensor TensorMethods::any(const Dims& dims, bool keepdim) const { return reel::any(self(this), dims, keepdim); }
Tensor TensorMethods::all(const Dims& dims, bool keepdim) const { return reel::all(self(this), dims, keepdim); }
Tensor TensorMethods::trace() const { return reel::trace(self(this)); }
Tensor TensorMethods::cross(const Tensor& b, int64_t dim) const { return reel::cross(self(this), b, dim); }
Tensor TensorMethods::cumsum(int64_t dim) const { return reel::cumsum(self(this), dim); }
Tensor TensorMethods::cumprod(int64_t dim) const { return reel::cumprod(self(this), dim); }
ValuesIndices TensorMethods::cummax(int64_t dim) const { return reel::cummax(self(this), dim); }
ValuesIndices TensorMethods::cummin(int64_t dim) const { return reel::cummin(self(this), dim); }
Tensor TensorMethods::logcumsumexp(int64_t dim) const { return reel::logcumsumexp(self(this), dim); }
Tensor TensorMethods::diff(int64_t n, int64_t dim) const { return reel::diff(self(this), n, dim); }

// ---- products -------------------------------------------------------------------------------------------------------

Tensor TensorMethods::matmul(const Tensor& b) const { return reel::matmul(self(this), b); }
Tensor TensorMethods::mm(const Tensor& b) const { return reel::mm(self(this), b); }
Tensor TensorMethods::bmm(const Tensor& b) const { return reel::bmm(self(this), b); }
Tensor TensorMethods::mv(const Tensor& x) const { return reel::mv(self(this), x); }
Tensor TensorMethods::dot(const Tensor& b) const { return reel::dot(self(this), b); }
Tensor TensorMethods::outer(const Tensor& b) const { return reel::outer(self(this), b); }
Tensor TensorMethods::inner(const Tensor& b) const { return reel::inner(self(this), b); }
Tensor TensorMethods::kron(const Tensor& b) const { return reel::kron(self(this), b); }
Tensor TensorMethods::addmm(const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) const {
  return reel::addmm(self(this), a, b, beta, alpha);
}
Tensor TensorMethods::baddbmm(const Tensor& a, const Tensor& b, Scalar beta, Scalar alpha) const {
  return reel::baddbmm(self(this), a, b, beta, alpha);
}

// ---- splitting and rearranging --------------------------------------------------------------------------------------

std::vector<Tensor> TensorMethods::split(int64_t size, int64_t dim) const { return reel::split(self(this), size, dim); }
std::vector<Tensor> TensorMethods::split(const std::vector<int64_t>& sizes, int64_t dim) const {
  return reel::split(self(this), sizes, dim);
}
std::vector<Tensor> TensorMethods::chunk(int64_t chunks, int64_t dim) const {
  return reel::chunk(self(this), chunks, dim);
}
std::vector<Tensor> TensorMethods::tensor_split(int64_t sections, int64_t dim) const {
  return reel::tensor_split(self(this), sections, dim);
}
std::vector<Tensor> TensorMethods::tensor_split(const std::vector<int64_t>& starts, int64_t dim) const {
  return reel::tensor_split(self(this), starts, dim);
}
std::vector<Tensor> TensorMethods::unbind(int64_t dim) const { return reel::unbind(self(this), dim); }
Tensor TensorMethods::unflatten(int64_t dim, const Shape& sizes) const {
  return reel::unflatten(self(this), dim, sizes);
}
Tensor TensorMethods::ravel() const { return reel::ravel(self(this)); }
Tensor TensorMethods::swapaxes(int64_t dim0, int64_t dim1) const { return reel::swapaxes(self(this), dim0, dim1); }
Tensor TensorMethods::swapdims(int64_t dim0, int64_t dim1) const { return reel::swapdims(self(this), dim0, dim1); }
Tensor TensorMethods::movedim(const Dims& source, const Dims& destination) const {
  return reel::movedim(self(this), source, destination);
}
Tensor TensorMethods::broadcast_to(const Shape& shape) const { return reel::broadcast_to(self(this), shape); }
Tensor TensorMethods::diagonal(int64_t offset, int64_t dim0, int64_t dim1) const {
  return reel::diagonal(self(this), offset, dim0, dim1);
}
Tensor TensorMethods::flip(const Dims& dims) const { return reel::flip(self(this), dims); }
Tensor TensorMethods::fliplr() const { return reel::fliplr(self(this)); }
Tensor TensorMethods::flipud() const { return reel::flipud(self(this)); }
Tensor TensorMethods::rot90(int64_t k, const Dims& dims) const { return reel::rot90(self(this), k, dims); }
Tensor TensorMethods::roll(int64_t shift, int64_t dim) const { return reel::roll(self(this), shift, dim); }
Tensor TensorMethods::repeat(const Shape& repeats) const { return reel::repeat(self(this), repeats); }
Tensor TensorMethods::tile(const Shape& repeats) const { return reel::tile(self(this), repeats); }
Tensor TensorMethods::repeat_interleave(int64_t repeats, std::optional<int64_t> dim) const {
  return reel::repeat_interleave(self(this), repeats, dim);
}
Tensor TensorMethods::repeat_interleave(const Tensor& repeats, std::optional<int64_t> dim) const {
  return reel::repeat_interleave(self(this), repeats, dim);
}
Tensor TensorMethods::tril(int64_t diagonal) const { return reel::tril(self(this), diagonal); }
Tensor TensorMethods::triu(int64_t diagonal) const { return reel::triu(self(this), diagonal); }
Tensor TensorMethods::diag(int64_t diagonal) const { return reel::diag(self(this), diagonal); }

// ---- indexing, sorting and counting ---------------------------------------------------------------------------------

Tensor TensorMethods::index_select(int64_t dim, const Tensor& ids) const {
  return reel::index_select(self(this), dim, ids);
}
Tensor TensorMethods::index_add(int64_t dim, const Tensor& ids, const Tensor& source, Scalar alpha) const {
  return reel::index_add(self(this), dim, ids, source, alpha);
}
Tensor TensorMethods::index_copy(int64_t dim, const Tensor& ids, const Tensor& source) const {
  return reel::index_copy(self(this), dim, ids, source);
}
Tensor TensorMethods::index_fill(int64_t dim, const Tensor& ids, const Tensor& value) const {
  return reel::index_fill(self(this), dim, ids, value);
}
Tensor TensorMethods::index_put(const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate) const {
  return reel::index_put(self(this), indices, value, accumulate);
}
Tensor TensorMethods::gather(int64_t dim, const Tensor& index) const { return reel::gather(self(this), dim, index); }
Tensor TensorMethods::scatter(int64_t dim, const Tensor& index, const Tensor& source) const {
  return reel::scatter(self(this), dim, index, source);
}
Tensor TensorMethods::scatter_add(int64_t dim, const Tensor& index, const Tensor& source) const {
  return reel::scatter_add(self(this), dim, index, source);
}
Tensor TensorMethods::scatter_reduce(int64_t dim, const Tensor& index, const Tensor& source, Reduce reduce,
                                     bool include_self) const {
  return reel::scatter_reduce(self(this), dim, index, source, reduce, include_self);
}
Tensor TensorMethods::take_along_dim(const Tensor& index, int64_t dim) const {
  return reel::take_along_dim(self(this), index, dim);
}
Tensor TensorMethods::take(const Tensor& index) const { return reel::take(self(this), index); }
Tensor TensorMethods::masked_select(const Tensor& mask) const { return reel::masked_select(self(this), mask); }
Tensor TensorMethods::masked_fill(const Tensor& mask, const Tensor& value) const {
  return reel::masked_fill(self(this), mask, value);
}
Tensor TensorMethods::masked_scatter(const Tensor& mask, const Tensor& source) const {
  return reel::masked_scatter(self(this), mask, source);
}
Tensor TensorMethods::nonzero() const { return reel::nonzero(self(this)); }
Tensor TensorMethods::argwhere() const { return reel::argwhere(self(this)); }
Tensor TensorMethods::select_scatter(const Tensor& source, int64_t dim, int64_t index) const {
  return reel::select_scatter(self(this), source, dim, index);
}
Tensor TensorMethods::slice_scatter(const Tensor& source, int64_t dim, std::optional<int64_t> start,
                                    std::optional<int64_t> stop, int64_t step) const {
  return reel::slice_scatter(self(this), source, dim, start, stop, step);
}
Tensor TensorMethods::diagonal_scatter(const Tensor& source, int64_t offset, int64_t dim0, int64_t dim1) const {
  return reel::diagonal_scatter(self(this), source, offset, dim0, dim1);
}
ValuesIndices TensorMethods::sort(int64_t dim, bool descending) const {
  return reel::sort(self(this), dim, descending);
}
Tensor TensorMethods::argsort(int64_t dim, bool descending) const { return reel::argsort(self(this), dim, descending); }
ValuesIndices TensorMethods::topk(int64_t k, int64_t dim, bool largest) const {
  return reel::topk(self(this), k, dim, largest);
}
ValuesIndices TensorMethods::kthvalue(int64_t k, int64_t dim, bool keepdim) const {
  return reel::kthvalue(self(this), k, dim, keepdim);
}
ValuesIndices TensorMethods::median(int64_t dim, bool keepdim) const { return reel::median(self(this), dim, keepdim); }
Tensor TensorMethods::median() const { return reel::median(self(this)); }
ValuesIndices TensorMethods::mode(int64_t dim, bool keepdim) const { return reel::mode(self(this), dim, keepdim); }
Tensor TensorMethods::quantile(double q, std::optional<int64_t> dim, bool keepdim) const {
  return reel::quantile(self(this), q, dim, keepdim);
}
Tensor TensorMethods::quantile(const Tensor& q, std::optional<int64_t> dim, bool keepdim) const {
  return reel::quantile(self(this), q, dim, keepdim);
}
Tensor TensorMethods::histc(int64_t bins, double min, double max) const {
  return reel::histc(self(this), bins, min, max);
}

// ---- random outcomes ------------------------------------------------------------------------------------------------

Tensor TensorMethods::bernoulli() const { return reel::bernoulli(self(this)); }
Tensor TensorMethods::multinomial(int64_t num_samples, bool replacement) const {
  return reel::multinomial(self(this), num_samples, replacement);
}

}  // namespace reel
