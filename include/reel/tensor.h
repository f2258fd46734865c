#pragma once
#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "reel/types.h"

namespace reel {

namespace cuda {
class Stream;
}
class Tensor;
struct RowSparse;
struct Bound;
enum class Reduce;  // ops/common.h

namespace detail {
struct Counted {
  std::atomic<uint32_t> refs{1};
};
void destroy(Counted* impl);                                // the last handle is gone
void set_data(const Tensor& target, const Tensor& source);  // target, a leaf, goes on with source's elements and dtype
}  // namespace detail

// ---- indexing -------------------------------------------------------------------------------------------------------

/// Python's start:stop:step. Negative bounds count from the end; bounds are clipped to the size; step is positive.
struct Slice {
  std::optional<int64_t> start, stop;
  int64_t step = 1;
  Slice() = default;
  Slice(std::optional<int64_t> start_, std::optional<int64_t> stop_, int64_t step_ = 1)
      : start(start_), stop(stop_), step(step_) {}
};
struct NoneIndex {};
struct EllipsisIndex {};
inline constexpr NoneIndex kNone;          ///< A new dimension of size 1, Python's None.
inline constexpr EllipsisIndex kEllipsis;  ///< As many full slices as are needed, Python's `...`.

struct TensorIndex;

/// What a gradient hook does: gets the final gradient, returns its replacement, or an undefined Tensor to keep it.
using GradHook = std::function<Tensor(const Tensor& grad)>;

// ---- the tensor -----------------------------------------------------------------------------------------------------

/// A handle to an n-dimensional array: copying a Tensor copies the handle, and views share their storage.
///
/// Dimensions are counted from 0, or from the end when negative. A default-made Tensor is undefined; every op refuses
/// it. A number converts to a 0-d tensor that takes part in type promotion as PyTorch's Python numbers do, so that
/// `2.0 * x` keeps the dtype of a float x.
///
/// Threads: a tensor may be read from several threads at once. A graph (a tensor that was computed from tensors that
/// require grad) belongs to one thread at a time; leaves (parameters) may be used in any number of threads' graphs at
/// once, and their gradients are summed safely.
class Tensor {
 public:
  Tensor() noexcept {}
  template <class T>
  requires std::is_arithmetic_v<T> Tensor(T number) : Tensor(Scalar(number)) {}
  Tensor(Scalar number);
  Tensor(const Tensor& other) noexcept : impl_(other.impl_) {
    if (impl_) impl_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  Tensor(Tensor&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)) {}
  /// Assigning makes this handle refer to another tensor. `x[0] = y` would do that to a handle that is gone at once, so
  /// it does not compile: x[0].copy_(y), x[0].fill_(5) and x.index_put_({…}, y) write.
  Tensor& operator=(const Tensor& other) & noexcept { return *this = Tensor(other); }
  Tensor& operator=(Tensor&& other) & noexcept { return std::swap(impl_, other.impl_), *this; }
  Tensor& operator=(const Tensor&) && = delete;
  ~Tensor() { reset(); }
  void reset() {
    // A handle that sees count 1 holds the only reference, so nobody can be adding one.
    if (impl_ &&
        (impl_->refs.load(std::memory_order_acquire) == 1 || impl_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1))
      detail::destroy(impl_);
    impl_ = nullptr;
  }

  bool defined() const { return impl_ != nullptr; }
  /// True when both handles are the same tensor (not: equal values).
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }

  // Metadata.
  const Shape& shape() const;
  const Strides& strides() const;  ///< In elements.
  int64_t dim() const { return shape().size(); }
  int64_t size(int64_t dim) const;
  int64_t numel() const;
  DType dtype() const;
  Device device() const;
  bool is_contiguous() const;
  bool is_floating_point() const { return reel::is_floating_point(dtype()); }

  // Values.
  /// The address of element [0, …, 0]; T must be the C++ type of dtype().
  template <class T>
  T* data() const {
    return static_cast<T*>(data(dtype_of<T>()));
  }
  /// The value of a one-element tensor, converted to T.
  template <class T>
  T item() const {
    return item().to<T>();
  }
  Scalar item() const;
  /// All elements in row-major order, converted to T.
  template <class T>
  std::vector<T> to_vector() const;
  /// As PyTorch prints it; dimensions longer than 1,000 elements in all are abbreviated to 3 at either end.
  std::string to_string() const;

  // Conversion. Both return *this when there is nothing to do.
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;
  /// A copy in memory of the host that GPUs copy from without anybody waiting; this tensor if it is there already. For
  /// CPU tensors. Its copies to a GPU go on while the host does other things.
  Tensor pin_memory() const;
  bool is_pinned() const;
  /// Says that this CUDA tensor is used on a stream other than that which it was made on, so that its memory is not
  /// reused before what the stream has been given by the time the tensor goes is done.
  void record_stream(const cuda::Stream& stream) const;
  Tensor contiguous() const;  ///< *this if it is contiguous already, a row-major copy if not.
  Tensor clone() const;       ///< A row-major copy.
  Tensor detach() const;      ///< The same storage without history.

  // Views: same storage, other shape or strides. Differentiable.
  Tensor view(const Shape& shape) const;     ///< One size may be -1. Throws where a copy would be needed.
  Tensor reshape(const Shape& shape) const;  ///< view() where possible, otherwise of a copy.
  Tensor transpose(int64_t dim0, int64_t dim1) const;
  Tensor permute(const Shape& dims) const;
  Tensor t() const;  ///< Matrix transpose; vectors and scalars are returned as they are.
  Tensor squeeze() const;
  Tensor squeeze(int64_t dim) const;
  Tensor unsqueeze(int64_t dim) const;
  Tensor expand(const Shape& shape) const;  ///< Repeats size-1 and new leading dimensions by stride 0; -1 keeps a size.
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;
  Tensor slice(int64_t dim, std::optional<int64_t> start = {}, std::optional<int64_t> stop = {},
               int64_t step = 1) const;
  Tensor select(int64_t dim, int64_t index) const;
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;

  // NumPy's indexing: t.index({Slice(1, -1), 0, kNone, kEllipsis, mask, ids}). Only numbers, slices, kNone and
  // kEllipsis: a view. With bool masks or int64 (int32) tensors: a copy, their result dimensions placed where NumPy
  // puts them.
  Tensor index(const std::vector<TensorIndex>& indices) const;
  Tensor operator[](int64_t index) const { return select(0, index); }
  /// t[indices] = value, with broadcasting; where an element is named twice, one of its values is kept, or, with
  /// accumulate, all are added to it.
  Tensor& index_put_(const std::vector<TensorIndex>& indices, const Tensor& value, bool accumulate = false);

  // In place. The shape and dtype stay; the operand is broadcast, and cast within its kind: an integer tensor takes no
  // float operand. Differentiable where the out-of-place op is; a leaf that requires grad may be changed only under
  // no_grad.
  Tensor& copy_(const Tensor& source);
  Tensor& fill_(Scalar value);
  Tensor& zero_() { return fill_(0); }
  Tensor& add_(const Tensor& other, Scalar alpha = 1);  ///< this += alpha * other
  Tensor& sub_(const Tensor& other, Scalar alpha = 1);  ///< this -= alpha * other
  Tensor& mul_(const Tensor& other);
  Tensor& div_(const Tensor& other);
  Tensor& pow_(const Tensor& exponent);
  Tensor& fmod_(const Tensor& other);
  Tensor& remainder_(const Tensor& other);
  Tensor& floor_divide_(const Tensor& other);
  Tensor& lerp_(const Tensor& end, const Tensor& weight);
  Tensor& addcmul_(const Tensor& a, const Tensor& b, Scalar value = 1);  ///< this += value * a * b
  Tensor& addcdiv_(const Tensor& a, const Tensor& b, Scalar value = 1);  ///< this += value * a / b
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
  Tensor& clamp_(const Bound& min, const Bound& max);
  Tensor& nan_to_num_(double nan = 0, std::optional<double> posinf = {}, std::optional<double> neginf = {});
  Tensor& masked_fill_(const Tensor& mask, const Tensor& value);
  // What the functions of the same names say. Without recording only what they name is touched.
  Tensor& index_add_(int64_t dim, const Tensor& ids, const Tensor& source, Scalar alpha = 1);
  Tensor& index_copy_(int64_t dim, const Tensor& ids, const Tensor& source);
  Tensor& index_fill_(int64_t dim, const Tensor& ids, const Tensor& value);
  Tensor& scatter_(int64_t dim, const Tensor& index, const Tensor& source);
  Tensor& scatter_add_(int64_t dim, const Tensor& index, const Tensor& source);
  Tensor& scatter_reduce_(int64_t dim, const Tensor& index, const Tensor& source, Reduce reduce,
                          bool include_self = true);
  Tensor& masked_scatter_(const Tensor& mask, const Tensor& source);
  Tensor& uniform_(double low = 0, double high = 1);
  Tensor& normal_(double mean = 0, double std = 1);
  Tensor& log_normal_(double mean = 1, double std = 2);  ///< exp of a normal number with these parameters.
  Tensor& exponential_(double lambda = 1);               ///< Density lambda exp(-lambda x).
  Tensor& cauchy_(double median = 0, double sigma = 1);
  Tensor& geometric_(double p);  ///< Trials up to the first success, 1, 2, …
  Tensor& bernoulli_(const Tensor& p = 0.5);
  Tensor& random_(int64_t low, int64_t high);  ///< Integers, low ≤ x < high.
  Tensor& operator+=(const Tensor& other) { return add_(other); }
  Tensor& operator-=(const Tensor& other) { return sub_(other); }
  Tensor& operator*=(const Tensor& other) { return mul_(other); }
  Tensor& operator/=(const Tensor& other) { return div_(other); }

  // Autograd.
  bool requires_grad() const;  ///< Set by the user on a leaf, or inherited from an input.
  Tensor& requires_grad_(bool value = true);
  bool is_leaf() const;
  /// Adds d(this)/d(leaf) to the grad() of every leaf that this was computed from. `grad` is the gradient of this
  /// (1 for a one-element tensor, required otherwise). The graph is freed unless retain_graph; with create_graph
  /// the gradients carry history themselves.
  void backward(const Tensor& grad = {}, bool retain_graph = false, bool create_graph = false) const;
  /// The gradient that backward() has summed up, undefined if none. Asking for it finishes products that were put off,
  /// so ask when it is needed, not after every backward(). Makes a row-sparse gradient dense.
  Tensor grad() const;
  /// The gradient of an embedding matrix as rows, nullptr if there is none or it is dense.
  const RowSparse* grad_rows() const;
  void set_grad(const Tensor& grad);  ///< Undefined clears it.
  Tensor& retain_grad();              ///< Keep the gradient of this non-leaf, too.
  /// Calls hook once per backward with the final gradient of this tensor. Returns a number for remove_hook.
  int64_t register_hook(GradHook hook);
  /// For leaves: calls hook once per backward, after the gradient has been added to grad().
  int64_t register_post_accumulate_grad_hook(std::function<void(const Tensor& leaf)> hook);
  void remove_hook(int64_t id);
  uint32_t version() const;  ///< Counts the in-place changes of the storage.

 private:
  friend struct TensorImpl;  // the library's way in
  explicit Tensor(detail::Counted* impl) : impl_(impl) {}
  void* data(DType dtype) const;
  detail::Counted* impl_ = nullptr;
};

std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

/// A bound of clamp: a number, a tensor, or none.
struct Bound {
  std::optional<Scalar> number;
  Tensor tensor;
  Bound() = default;
  template <class T>
  requires std::is_arithmetic_v<T> Bound(T value) : number(value) {}
  Bound(std::optional<Scalar> value) : number(value) {}
  Bound(Scalar value) : number(value) {}
  Bound(Tensor bound) : tensor(std::move(bound)) {}
  bool defined() const { return number || tensor.defined(); }
};

/// One entry of an index list: a number, a Slice, kNone, kEllipsis, a bool mask or an int64 (or int32) tensor of
/// positions.
struct TensorIndex {
  std::variant<int64_t, Slice, NoneIndex, EllipsisIndex, Tensor> value;
  template <std::integral T>
  requires(!std::same_as<T, bool>) TensorIndex(T index) : value(static_cast<int64_t>(index)) {}
  TensorIndex(Slice slice) : value(slice) {}
  TensorIndex(NoneIndex none) : value(none) {}
  TensorIndex(EllipsisIndex ellipsis) : value(ellipsis) {}
  TensorIndex(Tensor tensor) : value(std::move(tensor)) {}
};

/// A gradient that is zero but for some rows: row ids[i] of the matrix is values[i]. The ids are sorted and distinct.
struct RowSparse {
  Tensor ids;     ///< int64 [n]
  Tensor values;  ///< [n, …]: the shape of the matrix but for its first dimension
};

// ---- factories ------------------------------------------------------------------------------------------------------

/// Where tensors are made unless TensorOptions or another tensor say otherwise: the CPU, or what set_default_device has
/// set for the calling thread. What reads files and data sets makes CPU tensors always.
Device default_device();
void set_default_device(Device device);

/// Written as a designated initializer: zeros({2, 3}, {.dtype = kFloat64}). The dtype defaults to float32, or to what
/// the values say (arange, full, from) or need (randint, randperm: int64).
struct TensorOptions {
  std::optional<DType> dtype = {};
  Device device = default_device();
  bool requires_grad = false;
};

Tensor empty(const Shape& shape, TensorOptions options = {});  ///< Uninitialised.
Tensor zeros(const Shape& shape, TensorOptions options = {});
Tensor ones(const Shape& shape, TensorOptions options = {});
Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});
/// Of other's shape, and of its dtype unless options say otherwise.
Tensor empty_like(const Tensor& other, TensorOptions options = {});
Tensor zeros_like(const Tensor& other, TensorOptions options = {});
Tensor ones_like(const Tensor& other, TensorOptions options = {});
Tensor full_like(const Tensor& other, Scalar value, TensorOptions options = {});
/// start, start + step, … below end (above, for a negative step).
Tensor arange(Scalar start, Scalar end, Scalar step = 1, TensorOptions options = {});
Tensor arange(Scalar end, TensorOptions options = {});
Tensor linspace(double start, double end, int64_t steps, TensorOptions options = {});  ///< Both ends included.
Tensor eye(int64_t n, std::optional<int64_t> m = {}, TensorOptions options = {});

/// A tensor of `shape` over memory that somebody else owns, without copying. `release` is called when the last view of
/// it is gone; without it the memory must outlive them all.
Tensor from_blob(void* data, DType dtype, const Shape& shape, std::function<void()> release = {});
template <class T>
requires(!std::is_const_v<T>) Tensor from_blob(T* data, const Shape& shape, std::function<void()> release = {}) {
  return from_blob(data, dtype_of<T>(), shape, std::move(release));
}

namespace detail {
Tensor copy_of(const void* data, DType dtype, const Shape& shape, TensorOptions options);
void check_nested(size_t got, int64_t expected);
// Literals say less than variables: as with torch.tensor, 1.5 makes a float32 and 1 an int64 tensor.
template <class T>
TensorOptions literal(TensorOptions options) {
  if (!options.dtype)
    options.dtype = std::is_same_v<T, double> ? kFloat32 : std::is_same_v<T, int> ? kInt64 : dtype_of<T>();
  return options;
}
}  // namespace detail

/// A copy of the `shape` elements at `data` (row-major), of the same dtype unless options say otherwise.
template <class T>
Tensor from(const T* data, const Shape& shape, TensorOptions options = {}) {
  return detail::copy_of(data, dtype_of<T>(), shape, options);
}
template <class T, size_t N>
Tensor from(std::span<T, N> values, TensorOptions options = {}) {
  return from(values.data(), {static_cast<int64_t>(values.size())}, options);
}
/// A vector keeps its element type: of int it gives int32, which indices are not; use vector<int64_t> or to(kInt64).
template <class T>
Tensor from(const std::vector<T>& values, TensorOptions options = {}) {
  return from(values.data(), {static_cast<int64_t>(values.size())}, options);
}
template <std::same_as<bool> T>  // a template, so that no list of unlike numbers is taken for one of bools
Tensor from(const std::vector<T>& values, TensorOptions options = {}) {
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  if (!options.dtype) options.dtype = kBool;
  return from(bytes, options);
}
template <class T>
Tensor from(const std::vector<T>& values, const Shape& shape, TensorOptions options = {}) {
  REEL_CHECK(shape.numel() == static_cast<int64_t>(values.size()), "from: shape ", shape, " needs ", shape.numel(),
             " values, got ", values.size());
  if constexpr (std::same_as<T, bool>)
    return from(values, options).view(shape);
  else
    return from(values.data(), shape, options);
}
/// from({1.5, 2.0}), from({{1, 2}, {3, 4}}), from({{{…}}}): literals of one type; as in PyTorch ints give int64,
/// doubles float32.
template <class T>
Tensor from(std::initializer_list<T> values, TensorOptions options = {}) {
  return from(values.begin(), {static_cast<int64_t>(values.size())}, detail::literal<T>(options));
}
template <class T>
Tensor from(std::initializer_list<std::initializer_list<T>> rows, TensorOptions options = {}) {
  const int64_t m = rows.size(), n = m ? rows.begin()->size() : 0;
  const auto all = std::make_unique<T[]>(m * n);  // not a vector, which has no bools
  T* to = all.get();
  for (const auto& row : rows) {
    detail::check_nested(row.size(), n);
    to = std::copy(row.begin(), row.end(), to);
  }
  return from(all.get(), {m, n}, detail::literal<T>(options));
}
template <class T>
Tensor from(std::initializer_list<std::initializer_list<std::initializer_list<T>>> blocks, TensorOptions options = {}) {
  const int64_t l = blocks.size(), m = l ? blocks.begin()->size() : 0, n = m ? blocks.begin()->begin()->size() : 0;
  const auto all = std::make_unique<T[]>(l * m * n);
  T* to = all.get();
  for (const auto& rows : blocks) {
    detail::check_nested(rows.size(), m);
    for (const auto& row : rows) {
      detail::check_nested(row.size(), n);
      to = std::copy(row.begin(), row.end(), to);
    }
  }
  return from(all.get(), {l, m, n}, detail::literal<T>(options));
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor dense = to(kCPU).to(dtype_of<T>()).contiguous();
  const T* begin = dense.data<T>();
  return std::vector<T>(begin, begin + numel());
}

}  // namespace reel
