#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "reel/ops/attention.h"
#include "reel/ops/common.h"
#include "reel/ops/conv.h"
#include "reel/ops/crf.h"
#include "reel/ops/detail/ragged.h"
#include "reel/ops/loss.h"
#include "reel/ops/pointwise.h"
#include "reel/ops/rnn.h"

#pragma GCC visibility push(default)
/// Ragged tensors: many sequences of their own lengths as one tensor of all their rows, without padding.
///
///   Ragged words = Ragged::of(sentences);                      // tensors [len_i, 300]
///   auto [h, state] = lstm(words, {}, parameters);             // h.values [total, 100], as ragged as the words
///   Ragged weights = softmax(map(h, [&](const Tensor& rows) { return score(rows); }));
///   Tensor sentence = sum(weights * h);                        // [n, 100]
///
/// Whatever is done to each row by itself is done to `values`, with any op. What knows where a sequence ends takes the
/// Ragged; it reads the lengths that were checked when they were made, on the CPU, and never waits for a GPU. Sequences
/// may be empty, and there may be none. Everything is differentiable, to any order, by the values.
namespace reel {

// ---- lengths --------------------------------------------------------------------------------------------------------

/// The lengths of sequences that lie one after another. They are checked once, and cannot change: everything that is
/// made of a Ragged shares them. Where devices need them (offsets, places in another order), they are copied there when
/// they are first asked for, and kept. They may be used by several threads at once. A CUDA graph can only be captured
/// with lengths that have been on the GPU before: an Error says so.
class Lengths {
 public:
  /// Lengths of at least 0, whose sum fits into 63 bits; an Error otherwise.
  explicit Lengths(std::span<const int64_t> lengths);
  ~Lengths();
  Lengths(const Lengths&) = delete;
  Lengths& operator=(const Lengths&) = delete;

  ///@{
  /// To be shared. A tensor is int64, int32 or uint8 [n]; one of a GPU is waited for.
  static std::shared_ptr<const Lengths> of(std::span<const int64_t> lengths);
  static std::shared_ptr<const Lengths> of(const Tensor& lengths);
  ///@}

  int64_t size() const { return static_cast<int64_t>(offsets_.size()) - 1; }  ///< How many sequences there are.
  int64_t total() const { return offsets_.back(); }                           ///< The rows of all of them.
  int64_t longest() const { return longest_; }                                ///< The longest's; 0 if there is none.
  /// That of sequence i in [0, size()), which is not checked.
  int64_t operator[](int64_t i) const { return offsets_[i + 1] - offsets_[i]; }
  /// [0, l0, l0 + l1, …], size() + 1 numbers: where each sequence begins and ends.
  std::span<const int64_t> offsets() const { return offsets_; }
  std::vector<int64_t> to_vector() const;  ///< All lengths.
  /// The same lengths in the same order.
  bool operator==(const Lengths& other) const { return this == &other || offsets_ == other.offsets_; }

 private:
  friend struct LengthsOnDevice;
  struct Copy;
  std::vector<int64_t> offsets_;
  int64_t longest_ = 0;
  mutable std::atomic<Copy*> copies_{nullptr};  // a list that only grows
};

// ---- ragged tensors -------------------------------------------------------------------------------------------------

/// Sequences of their own lengths, one after another.
struct Ragged {
  Tensor values;  ///< [total, …]: the rows of the first sequence, then those of the second, …
  std::shared_ptr<const Lengths> lengths;  ///< Of the sequences; they add up to total.

  /// Sequences [len_i, …] of one dtype, device and shape of a row; at least one, so that this shape is known. Without
  /// any sequences it is Ragged{zeros({0, …}), Lengths::of({})}.
  static Ragged of(TensorList sequences);
  /// The first lengths[i] rows of the sequences in `padded`, [n, longest, …] or, unless batch_first, [longest, n, …];
  /// longest may be more than any length.
  static Ragged unpad(const Tensor& padded, std::shared_ptr<const Lengths> lengths, bool batch_first = true);

  int64_t size() const;                ///< How many sequences there are.
  Tensor operator[](int64_t i) const;  ///< Sequence i, [len_i, …]: a view. Negative i count from the end.
  std::vector<Tensor> unbind() const;  ///< All sequences: views.
  /// [n, longest, …] or, unless batch_first, [longest, n, …], with `value` past the sequences' ends.
  Tensor pad(Scalar value = 0, bool batch_first = true) const;
  Tensor mask() const;             ///< bool [n, longest]: true where the sequences are.
  Ragged to(DType dtype) const;    ///< With values of that dtype.
  Ragged to(Device device) const;  ///< With values there.
};

///@{
/// f of the rows of all sequences at once: map(x, [](const Tensor& rows) { return relu(rows); }), map(words, linear).
/// It returns as many rows, an Error otherwise, in the same order, which cannot be checked. The two of the second form
/// have the same lengths. A program that says `using namespace std`, too, writes reel::map and std::map: the name alone
/// is ambiguous there, as are any, stack and logical_and, of which std has classes.
template <class F>
Ragged map(const Ragged& x, F&& f) {
  return detail::same_rows("map", x, std::forward<F>(f)(detail::rows_of("map", x)));
}
template <class F>
Ragged map(const Ragged& a, const Ragged& b, F&& f) {
  detail::check_same_lengths("map", a, b);
  return detail::same_rows("map", a, std::forward<F>(f)(a.values, b.values));
}
///@}

// ---- arithmetic -----------------------------------------------------------------------------------------------------

///@{
/// Row by row. Two Ragged have the same lengths; an Error names the first sequence that differs. The rows of either may
/// broadcast: [total, 1] beside [total, 100]. A tensor is a number, or for each row the same: it has fewer dimensions
/// than the values, or size 1 in the first. One that has a row for each sequence goes through expand().
Ragged operator+(const Ragged& a, const Ragged& b);
Ragged operator-(const Ragged& a, const Ragged& b);
Ragged operator*(const Ragged& a, const Ragged& b);
Ragged operator/(const Ragged& a, const Ragged& b);
Ragged operator+(const Ragged& a, const Tensor& b);
Ragged operator-(const Ragged& a, const Tensor& b);
Ragged operator*(const Ragged& a, const Tensor& b);
Ragged operator/(const Ragged& a, const Tensor& b);
Ragged operator+(const Tensor& a, const Ragged& b);
Ragged operator-(const Tensor& a, const Ragged& b);
Ragged operator*(const Tensor& a, const Ragged& b);
Ragged operator/(const Tensor& a, const Ragged& b);
Ragged operator-(const Ragged& x);
///@}

// ---- within sequences -----------------------------------------------------------------------------------------------

///@{
/// Each sequence's sum, mean, maximum or minimum over its rows, of floating-point values: [n, …]. An empty sequence
/// gives 0, 0, -infinity and infinity. Equal extremes share the gradient evenly.
Tensor sum(const Ragged& x);
Tensor mean(const Ragged& x);
Tensor max(const Ragged& x);
Tensor min(const Ragged& x);
///@}
/// The softmax over the rows of each sequence, for each of the other positions: the weights of attention.
Ragged softmax(const Ragged& x);
/// x [n, …], a row for each sequence, repeated for each row of it.
Ragged expand(const Tensor& x, const Ragged& like);

/// Attention within each sequence: for query [total, E] or [total, heads, E], key the same and value [total, heads, Ev]
/// the queries of sequence i attend to the keys of sequence i alone. Key and value have the same lengths, which may be
/// others than the query's. Results are [total, (heads,) Ev]. One kernel, and one node on the tape, which keeps nothing
/// that grows with the square of a length; with dropout it is made of padded ops. Of the options, a mask is an Error:
/// there is no shape that it could have. With is_causal query i of a sequence attends to its keys 0 … i; with
/// enable_gqa query may have a whole multiple of the others' heads. A query without keys gets zeros.
Ragged scaled_dot_product_attention(const Ragged& query, const Ragged& key, const Ragged& value,
                                    const AttentionOptions& options = {});

/// conv1d of each sequence: x has values [total, in], the result [total', out], for weight [out, in / groups, kernel].
/// No window crosses a boundary: padding extends every sequence by zeros at either end. A sequence that is shorter than
/// the kernel, padding included, has no window and gives an empty one. The channels of a Ragged lie last:
/// options.channels_last changes nothing.
Ragged conv1d(const Ragged& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions<1>& options = {});

// ---- recurrent nets -------------------------------------------------------------------------------------------------

///@{
/// As of a list of sequences (ops/rnn.h): values [total, in] give values [total, directions · hidden]; states are
/// [layers · directions, n, hidden]. An empty sequence has no output, and its state stays what it is.
LSTMResult<Ragged> lstm(const Ragged& x, const CellState& state, TensorList parameters,
                        const RecurrentOptions& options = {});
RNNResult<Ragged> gru(const Ragged& x, const Tensor& h, TensorList parameters, const RecurrentOptions& options = {});
RNNResult<Ragged> rnn_tanh(const Ragged& x, const Tensor& h, TensorList parameters,
                           const RecurrentOptions& options = {});
RNNResult<Ragged> rnn_relu(const Ragged& x, const Tensor& h, TensorList parameters,
                           const RecurrentOptions& options = {});
///@}

// ---- losses ---------------------------------------------------------------------------------------------------------

///@{
/// The cross entropy of each sequence by itself, [n]: for logits with values [total, classes] the sum (kSum) or mean
/// (kMean, over what is not ignored; 0 where nothing is left) of its rows; with kNoReduction those of all rows,
/// [total].
Tensor cross_entropy(const Ragged& logits, const Ragged& target, const CrossEntropyLossOptions& options = {});
inline Tensor cross_entropy(const Ragged& logits, const Ragged& target, Reduction reduction) {
  return cross_entropy(logits, target, {.reduction = reduction});
}
///@}

/// As of a list of chains (ops/crf.h): emissions with values [total, tags], tags with int64, int32 or uint8 [total];
/// [n]. An empty chain's log likelihood is 0.
Tensor crf_log_likelihood(const Ragged& emissions, const Ragged& tags, const Tensor& transitions,
                          const Tensor& start = {}, const Tensor& end = {}, const CrfConstraints& allowed = {});
/// p(y_t = tag | emissions), with values of emissions' shape.
Ragged crf_marginals(const Ragged& emissions, const Tensor& transitions, const Tensor& start = {},
                     const Tensor& end = {});
/// What crf_decode returns for a Ragged.
struct RaggedCrfPaths {
  Ragged tags;    ///< int64 values [total]
  Tensor scores;  ///< [n]; -infinity where no chain is allowed, 0 for an empty one
};
/// The chain of the highest score for each sequence, as crf_decode finds it.
RaggedCrfPaths crf_decode(const Ragged& emissions, const Tensor& transitions, const Tensor& start = {},
                          const Tensor& end = {}, const CrfConstraints& allowed = {});

}  // namespace reel
#pragma GCC visibility pop
