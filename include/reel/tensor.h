#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "reel/tensor/detail/tensor.h"
#include "reel/tensor_methods.h"
#include "reel/types.h"

#pragma GCC visibility push(default)
/// The class Tensor, what indexes it, and the functions that make one.
namespace reel {

namespace cuda {
class Stream;
}
class Tensor;
struct SparseGrad;
struct TensorOptions;

// ---- indexing -------------------------------------------------------------------------------------------------------

struct NoneIndex {};                       ///< The type of kNone.
struct EllipsisIndex {};                   ///< The type of kEllipsis.
inline constexpr NoneIndex kNone;          ///< A new dimension of size 1, Python's None; no bound, in a Slice.
inline constexpr EllipsisIndex kEllipsis;  ///< As many full slices as are needed, Python's `...`.

/// A bound of a Slice: a number, or {} or kNone for none.
struct SliceBound {
  SliceBound() = default;   ///< None.
  SliceBound(NoneIndex) {}  ///< None.
  template <std::convertible_to<std::optional<int64_t>> Number>
  SliceBound(Number number_) : number(number_) {}  ///< An integer, or a std::optional of one.
  std::optional<int64_t> number;                   ///< What was given.
};
/// Python's start:stop:step. Negative bounds count from the end; bounds are clipped to the size; step is positive.
struct Slice {
  std::optional<int64_t> start;  ///< The first position; 0 if absent.
  std::optional<int64_t> stop;   ///< Past the last position; the size if absent.
  int64_t step = 1;              ///< From one position to the next.
  Slice() = default;             ///< Everything.
  /// Slice(1, -1), Slice({}, 3), Slice(kNone, 3), Slice(0, {}, 2)
  Slice(SliceBound start_, SliceBound stop_, int64_t step_ = 1)
      : start(start_.number), stop(stop_.number), step(step_) {}
};

struct TensorIndex;

/// A gradient hook. It receives the final gradient and returns its replacement, or an undefined Tensor to keep it.
using GradHook = std::function<Tensor(const Tensor& grad)>;

// ---- the tensor -----------------------------------------------------------------------------------------------------

/// Options of grad() and backward().
struct GradOptions {
  bool retain_graph = false;  ///< Keep the graph for another backward pass. Implied by create_graph.
  bool create_graph = false;  ///< Record the backward pass, so that the gradients can be differentiated again.
  bool allow_unused = false;  ///< Undefined gradients for inputs that no output depends on, instead of an Error.
};

/// A handle to an n-dimensional array: copying a Tensor copies the handle, and views share their storage.
///
/// Dimensions are counted from 0, or from the end when negative. A default-constructed Tensor is undefined; every op
/// throws reel::Error for it. A number converts to a 0-d tensor that takes part in type promotion as PyTorch's Python
/// numbers do, so that `2.0 * x` keeps the dtype of a float x. A bool does not: Tensor(true) is written in full, since
/// what a call of a function of the standard library returns, as of std::empty, must not become a tensor unnoticed.
///
/// Ops are functions (ops.h) and, as in PyTorch, members (tensor_methods.h): sum(x, 1) and x.sum(1), x.add_(y).
///
/// Threads: a tensor may be read from several threads at once. A graph (a tensor that was computed from tensors that
/// require grad) belongs to one thread at a time; leaves (parameters) may be used in any number of threads' graphs at
/// once, and their gradients are summed safely.
class Tensor : public TensorMethods {
 public:
  Tensor() = default;  ///< Undefined.
  template <class T>
  requires std::is_arithmetic_v<T>
  explicit(std::same_as<T, bool>) Tensor(T number) : Tensor(Scalar(number)) {}  ///< A number.
  Tensor(Scalar number);                                                        ///< A number.
  Tensor(const Tensor&) = default;                                              ///< Another handle to the same tensor.
  Tensor(Tensor&&) = default;                                                   ///< Leaves the other one undefined.
  ///@{
  /// Assignment rebinds this handle to another tensor; it writes no elements. `x[0] = y` would rebind a temporary, so
  /// it does not compile: write with x[0].copy_(y), x[0].fill_(5) or x.index_put_({…}, y).
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & = default;
  Tensor& operator=(const Tensor&) && = delete;
  ///@}
  void reset() { impl_.reset(); }                                           ///< Makes this handle undefined.
  bool defined() const { return impl_.get() != nullptr; }                   ///< Refers to a tensor.
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }  ///< The same tensor, not equal values.

  // Metadata.
  const Shape& shape() const;                     ///< The sizes of the dimensions.
  const Shape& sizes() const { return shape(); }  ///< PyTorch's other name for shape().
  const Strides& strides() const;                 ///< In elements.
  int64_t dim() const { return shape().size(); }  ///< The number of dimensions.
  int64_t ndimension() const { return dim(); }    ///< PyTorch's other name for dim().
  int64_t size(int64_t dim) const;                ///< Of one dimension.
  int64_t numel() const;                          ///< The number of elements.
  DType dtype() const;                            ///< The type of the elements.
  Device device() const;                          ///< Where the elements are.
  TensorOptions options() const;                  ///< dtype and device: zeros({3}, x.options())
  /// On a GPU.
  bool is_cuda() const { return device().type == DeviceType::kCUDA; }
  bool is_contiguous() const;  ///< Row-major without gaps.
  /// Of float32, float64, float16 or bfloat16.
  bool is_floating_point() const { return reel::is_floating_point(dtype()); }

  // Values.
  /// The address of element [0, …, 0], a device address for a CUDA tensor; the others follow by strides(). Throws if T
  /// is not the C++ type of dtype(). Writes through it are not recorded and do not change version().
  template <class T>
  T* data() const {
    return static_cast<T*>(data(dtype_of<T>()));
  }
  /// Returns data(), under PyTorch's other name.
  template <class T>
  T* data_ptr() const {
    return data<T>();
  }
  /// The value of a one-element tensor, converted to T as by Scalar::to: an Error where an integer T cannot hold it.
  /// Throws for any other number of elements; synchronizes with a GPU, as all reading of values does.
  template <class T>
  T item() const {
    return item().to<T>("item");
  }
  Scalar item() const;  ///< The same, not converted.
  /// All elements in row-major order, converted to T by the same rule and copied to the host.
  template <class T>
  std::vector<T> to_vector() const;
  std::string to_string() const;  ///< As PyTorch prints it; above 1,000 elements only 3 at either end of dimensions.

  // Conversion.
  ///@{
  /// Of this dtype or on this device: *this where there is nothing to convert. Differentiable. Floats become integers
  /// by rounding towards 0; what is out of range becomes the nearest int32 or int64, NaN 0, and uint8 is the lowest
  /// byte of the int64, on every device. A copy from the host has read its source when it returns, and one to the host
  /// is done, unless it is `non_blocking`.
  Tensor to(DType dtype) const;
  Tensor to(Device device, CopyOptions options = {}) const;
  ///@}
  Tensor cpu() const { return to(kCPU); }    ///< to(kCPU)
  Tensor cuda() const { return to(kCUDA); }  ///< to(kCUDA)
  /// Returns the tensor in the dtype and on the device of `other`.
  Tensor type_as(const Tensor& other) const { return to(other.device()).to(other.dtype()); }
  Tensor contiguous() const;  ///< Row-major: a copy unless is_contiguous().
  /// Returns the tensor in pinned (page-locked) host memory: a copy unless is_pinned(). A GPU copies from and to it
  /// faster and, with CopyOptions::non_blocking, while the program goes on.
  Tensor pin_memory() const;
  bool is_pinned() const;  ///< In pinned memory.
  Tensor clone() const;    ///< A row-major copy, always.
  Tensor detach() const;   ///< Shares the storage; requires no grad and has no history.
  /// Marks this CUDA tensor as used on `stream`, which is not the one that it was allocated on: its memory is then
  /// reused only after the work that is queued on `stream` when it is released. Throws for a CPU tensor.
  void record_stream(const cuda::Stream& stream) const;

  // Views: same storage, other shape or strides. Differentiable. Where nothing would change, transpose, t, squeeze(dim)
  // and index give this tensor itself, also under no_grad.
  ///@{
  /// Returns the same elements in row-major order under another shape, in which one size may be -1, or under that of
  /// another tensor. Where that would need a copy view() throws and reshape() copies.
  Tensor view(const Shape& shape) const;
  Tensor reshape(const Shape& shape) const;
  Tensor view_as(const Tensor& other) const { return view(other.shape()); }
  Tensor reshape_as(const Tensor& other) const { return reshape(other.shape()); }
  ///@}
  Tensor transpose(int64_t dim0, int64_t dim1) const;  ///< With the two dimensions exchanged.
  Tensor permute(const Shape& dims) const;             ///< Dimension i of the result is dimension dims[i].
  Tensor t() const;                         ///< Matrix transpose; vectors and scalars are returned as they are.
  Tensor squeeze() const;                   ///< Without the dimensions of size 1.
  Tensor squeeze(int64_t dim) const;        ///< Without dimension dim if its size is 1.
  Tensor unsqueeze(int64_t dim) const;      ///< With a new dimension of size 1 at dim.
  Tensor expand(const Shape& shape) const;  ///< Repeats size-1 and new leading dimensions by stride 0; -1 keeps a size.
  Tensor expand_as(const Tensor& other) const { return expand(other.shape()); }  ///< expand(other.shape())
  Tensor narrow(int64_t dim, int64_t start, int64_t length) const;  ///< Positions start … start + length - 1 of dim.
  /// Positions start, start + step, … before stop of dim, as Python slices.
  Tensor slice(int64_t dim, std::optional<int64_t> start = {}, std::optional<int64_t> stop = {},
               int64_t step = 1) const;
  Tensor flatten(int64_t start_dim = 0, int64_t end_dim = -1) const;  ///< These dimensions as one, by reshape().
  Tensor select(int64_t dim, int64_t index) const;  ///< One position of dim, which is dropped; -1 is the last.
  Tensor operator[](int64_t index) const { return select(0, index); }  ///< select(0, index)
  /// NumPy's indexing: t.index({Slice(1, -1), 0, kNone, kEllipsis, mask, ids}). Returns a view for numbers, slices,
  /// kNone and kEllipsis; a copy if there are masks (bool) or indices (int64, int32), whose dimensions are
  /// placed as in NumPy. index_put_ writes there.
  Tensor index(const std::vector<TensorIndex>& indices) const;

  // Autograd.
  bool requires_grad() const;  ///< Set by the user on a leaf, or inherited from an input.
  /// For floating-point leaves, others throw; returns *this. A view that becomes a leaf keeps sharing memory with its
  /// base; while it exists, a recorded in-place change that would give that memory a history throws.
  Tensor& requires_grad_(bool value = true);
  bool is_leaf() const;  ///< Not computed by a recorded op.
  /// Adds d(this)/d(leaf) to the grad() of every leaf that this was computed from. `grad` is the gradient of this (1
  /// for a one-element tensor, required otherwise). The graph is freed unless retain_graph; with create_graph the
  /// gradients have a history themselves: y.backward({}, {.retain_graph = true}). Throws if this does not require grad,
  /// if the graph has been freed, or if a saved tensor has been changed in place. An exception that leaves it, from a
  /// hook or for want of memory, may come after some leaves have got their gradients: call zero_grad() before trying
  /// again, and record the graph anew.
  void backward(const Tensor& grad = {}, GradOptions options = {}) const;
  /// The gradient that backward() has accumulated, undefined if none. Reading it computes the matrix products of weight
  /// gradients that were deferred to be merged, so read it when it is needed, not after every backward(). Makes a
  /// sparse gradient dense. Several threads may read it at once. A handle that is kept is stale after the next backward
  /// pass: that may add to the handle's elements, to a new tensor, or later, when grad() is called again.
  Tensor grad() const;
  /// The gradient of an embedding matrix as rows, nullptr if there is none or it is dense. Valid until the gradient
  /// changes or grad() makes it dense.
  const SparseGrad* sparse_grad() const;
  /// Sets the gradient, of this shape, dtype and device; undefined clears it. The next backward pass may add to the
  /// elements of `grad` itself; like a handle from grad(), it is stale then until grad() is called.
  void set_grad(const Tensor& grad);
  Tensor& retain_grad();  ///< Keep the gradient of this non-leaf, too.
  /// Calls hook once per backward pass, on its thread, with the final gradient of this tensor (dense, if it was
  /// sparse), however often the tensor was used. Several hooks run in the order of registration, each with the result
  /// of the one before. Returns a number for remove_hook. Throws if this does not require grad.
  int64_t register_hook(GradHook hook);
  /// For leaves: calls hook once per backward pass, after the gradient has been added to grad().
  int64_t register_post_accumulate_grad_hook(std::function<void(const Tensor& leaf)> hook);
  void remove_hook(int64_t id);  ///< An Error if there is none of that number.
  uint32_t version() const;      ///< The number of in-place changes of the storage, which views share.

 private:
  friend struct TensorImpl;  // the library's access
  explicit Tensor(detail::Counted* impl) : impl_(impl) {}
  void* data(DType dtype) const;
  detail::IntrusivePtr impl_;
};

std::ostream& operator<<(std::ostream& out, const Tensor& tensor);  ///< Writes tensor.to_string().

/// A bound of clamp: a number, a tensor, or none.
struct Bound {
  std::optional<Scalar> number;  ///< The bound of all elements, if it is a number.
  Tensor tensor;                 ///< The bound of each element (broadcast), if it is a tensor.
  Bound() = default;             ///< None.
  ///@{
  /// A number or a tensor; nullopt is none.
  template <class T>
  requires std::is_arithmetic_v<T> Bound(T value) : number(value) {}
  Bound(std::optional<Scalar> value) : number(value) {}
  Bound(Scalar value) : number(value) {}
  Bound(Tensor bound) : tensor(std::move(bound)) {}
  ///@}
  bool defined() const { return number || tensor.defined(); }  ///< Not none.
};

/// One entry of an index list: a number, a Slice, kNone, kEllipsis, a bool mask or an int64 (or int32) tensor of
/// positions.
struct TensorIndex {
  std::variant<int64_t, Slice, NoneIndex, EllipsisIndex, Tensor> value;  ///< Which of them it is.
  ///@{
  /// Converts implicitly, so that an index list is written {0, Slice(1, 3), kNone}.
  template <std::integral T>
  requires(!std::same_as<T, bool>) TensorIndex(T index) : value(static_cast<int64_t>(index)) {}
  TensorIndex(Slice slice) : value(slice) {}
  TensorIndex(NoneIndex none) : value(none) {}
  TensorIndex(EllipsisIndex ellipsis) : value(ellipsis) {}
  TensorIndex(Tensor tensor) : value(std::move(tensor)) {}
  ///@}
};

/// A gradient that is zero except for some rows: row ids[i] of the matrix is values[i]. The ids are sorted and
/// distinct.
struct SparseGrad {
  Tensor ids;     ///< int64 [n]
  Tensor values;  ///< [n, …]: the shape of the matrix except for its first dimension
};

// ---- lists of tensors -----------------------------------------------------------------------------------------------

/// A TensorList is several tensors: {a, b}, a vector of them, an array, or a span. Use it only as a function parameter:
/// it does not own the tensors.
struct TensorList : std::span<const Tensor> {
  ///@{
  /// Makes a view of the list, which must outlive it.
  TensorList(std::initializer_list<Tensor> list) : span(list.begin(), list.size()) {}
  template <class List>
  requires std::same_as<std::remove_cvref_t<decltype(*std::data(std::declval<const List&>()))>, Tensor> TensorList(
      const List& list)
      : span(std::data(list), std::size(list)) {}
  TensorList(const Tensor* first, size_t count) : span(first, count) {}
  ///@}
};

// ---- factories ------------------------------------------------------------------------------------------------------

/// Written as a designated initializer: zeros({2, 3}, {.dtype = kFloat64}). The dtype defaults to float32, to that
/// of the values (arange, full, tensor), or to int64 (randint, randperm).
struct TensorOptions {
  std::optional<DType> dtype = {};   ///< Of the elements; see above if not given.
  Device device = default_device();  ///< Where the elements are.
  bool requires_grad = false;        ///< As by requires_grad_().
};

Tensor empty(const Shape& shape, TensorOptions options = {});  ///< Uninitialised.
///@{
/// The same. std::empty would be a better match for a list or vector than a function that takes a Shape.
template <class T>
requires std::integral<T> Tensor empty(std::initializer_list<T> shape) {
  Shape sizes;
  for (const T size : shape) sizes.push_back(static_cast<int64_t>(size));
  return empty(sizes);
}
template <class T>
requires std::integral<T> Tensor empty(const std::vector<T>& shape) { return empty(Shape(shape)); }
///@}
Tensor zeros(const Shape& shape, TensorOptions options = {});  ///< Filled with 0.
Tensor ones(const Shape& shape, TensorOptions options = {});   ///< Filled with 1.
/// Filled with the value: bool, int64 or float32 as it is a bool, an integer or a float. An Error if options.dtype is
/// an integer type that cannot hold it (see Scalar::to); a negative integer wraps in uint8, as in PyTorch.
Tensor full(const Shape& shape, Scalar value, TensorOptions options = {});
///@{
/// Of other's shape and on its device, and of its dtype unless options.dtype is given. options.device is not used.
Tensor empty_like(const Tensor& other, TensorOptions options = {});
Tensor zeros_like(const Tensor& other, TensorOptions options = {});
Tensor ones_like(const Tensor& other, TensorOptions options = {});
Tensor full_like(const Tensor& other, Scalar value, TensorOptions options = {});
///@}

///@{
/// start, start + step, … below end (above, for a negative step): int64 of integers, float32 otherwise. start is 0 and
/// step 1 where not given. For an integer dtype fractions of start and step are dropped first, as in NumPy, but not in
/// the number of elements.
Tensor arange(Scalar start, Scalar end, Scalar step = 1, TensorOptions options = {});
Tensor arange(Scalar end, TensorOptions options = {});
///@}
Tensor linspace(double start, double end, int64_t steps, TensorOptions options = {});  ///< Both ends included.
/// [n, m] (m is n by default) with ones on the diagonal and zeros elsewhere.
Tensor eye(int64_t n, std::optional<int64_t> m = {}, TensorOptions options = {});
///@{
/// The same with a dtype alone for options: zeros({2, 3}, kInt64).
template <std::same_as<DType> T>
Tensor empty(const Shape& shape, T dtype) {
  return empty(shape, TensorOptions{.dtype = dtype});
}
template <std::same_as<DType> T>
Tensor zeros(const Shape& shape, T dtype) {
  return zeros(shape, TensorOptions{.dtype = dtype});
}
template <std::same_as<DType> T>
Tensor ones(const Shape& shape, T dtype) {
  return ones(shape, TensorOptions{.dtype = dtype});
}
template <std::same_as<DType> T>
Tensor full(const Shape& shape, Scalar value, T dtype) {
  return full(shape, value, TensorOptions{.dtype = dtype});
}
///@}

///@{
/// A contiguous CPU tensor of `shape` over host memory that the caller owns; nothing is copied. `release` is called
/// when the last view of it is destroyed, or, while another one's `release` is running, behind that; without it the
/// memory must outlive them all.
Tensor from_blob(void* data, DType dtype, const Shape& shape, std::function<void()> release = {});
template <class T>
requires(!std::is_const_v<T>) Tensor from_blob(T* data, const Shape& shape, std::function<void()> release = {}) {
  return from_blob(data, dtype_of<T>(), shape, std::move(release));
}
///@}

// ---- tensors of given values ----------------------------------------------------------------------------------------

///@{
/// A copy of the `shape` elements of type `dtype` at `data` (row-major), of the same dtype unless options say
/// otherwise; an Error where that is an integer type which cannot hold a value (see Scalar::to).
Tensor tensor(const void* data, DType dtype, const Shape& shape, TensorOptions options = {});
template <class T>
Tensor tensor(const T* data, const Shape& shape, TensorOptions options = {}) {
  return tensor(data, dtype_of<T>(), shape, options);
}
///@}
/// A 1-d tensor of the values of a span.
template <class T, size_t N>
Tensor tensor(std::span<T, N> values, TensorOptions options = {}) {
  return tensor(values.data(), {static_cast<int64_t>(values.size())}, options);
}
///@{
/// A vector keeps its element type: vector<int> gives int32, vector<double> gives float64.
template <class T>
Tensor tensor(const std::vector<T>& values, TensorOptions options = {}) {
  return tensor(values.data(), {static_cast<int64_t>(values.size())}, options);
}
template <std::same_as<bool> T>  // a template, so that a list of mixed numbers does not convert to bools
Tensor tensor(const std::vector<T>& values, TensorOptions options = {}) {
  const std::vector<uint8_t> bytes(values.begin(), values.end());
  if (!options.dtype) options.dtype = kBool;
  return tensor(bytes, options);
}
template <class T>
Tensor tensor(const std::vector<T>& values, const Shape& shape, TensorOptions options = {}) {
  REEL_CHECK(shape.numel() == static_cast<int64_t>(values.size()), "tensor: shape ", shape, " needs ", shape.numel(),
             " values, got ", values.size());
  if constexpr (std::same_as<T, bool>)
    return tensor(values, options).view(shape);
  else
    return tensor(values.data(), shape, options);
}
///@}

///@{
/// tensor(1.5), tensor({1.5, 2.0}), tensor({{1, 2}, {3, 4}}), tensor({{{…}}}): literals of one type; as in PyTorch ints
/// give int64, doubles float32. A single number makes a 0-d tensor, which unlike Tensor(1.5) keeps its dtype in type
/// promotion among 0-d tensors.
template <class T>
requires std::is_arithmetic_v<T> Tensor tensor(T value, TensorOptions options = {}) {
  if (!options.dtype) options.dtype = detail::literal_dtype<T>();
  return tensor(&value, {}, options);
}
template <class T>
Tensor tensor(std::initializer_list<T> values, TensorOptions options = {}) {
  if (!options.dtype) options.dtype = detail::literal_dtype<T>();
  return tensor(values.begin(), {static_cast<int64_t>(values.size())}, options);
}
template <class T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> rows, TensorOptions options = {}) {
  if (!options.dtype) options.dtype = detail::literal_dtype<T>();
  const detail::Flat<T> flat = detail::flatten(rows);
  return tensor(flat.values.get(), flat.shape, options);
}
template <class T>
Tensor tensor(std::initializer_list<std::initializer_list<std::initializer_list<T>>> blocks,
              TensorOptions options = {}) {
  if (!options.dtype) options.dtype = detail::literal_dtype<T>();
  const detail::Flat<T> flat = detail::flatten(blocks);
  return tensor(flat.values.get(), flat.shape, options);
}
///@}

namespace detail {
/// Returns x contiguous, of that dtype and on the host. It is an Error if an integer dtype cannot hold a value.
Tensor to_host(const char* op, const Tensor& x, DType dtype);
}  // namespace detail

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor dense = detail::to_host("to_vector", *this, dtype_of<T>());
  const T* begin = dense.data<T>();
  return std::vector<T>(begin, begin + numel());
}

}  // namespace reel
#pragma GCC visibility pop
