#pragma once
#include <array>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <vector>

#include "lib/core/fibers.h"
#include "lib/core/tensor_impl.h"
#include "reel/detail/point.h"
#include "reel/ops/rnn.h"

// Ops at which the examples of batching::map meet, as they do at layers. Such an op begins with a test that costs no
// more than that for autocast, which it includes:
//
//   if (!op_modes.plain()) [[unlikely]] {
//     if (const Point point; point)
//       return point.join("linear", {x}, {&weight, &bias}, [&](auto rows) { return linear(rows[0], weight, bias); });
//     if (const CastToHalf low{}) return linear(low(x), low(weight), low(bias));
//   }
namespace reel {

/// The call f(rows), which others may join that have the same `shared` tensors and an equal key, and the same f but for
/// what it refers to.
template <class F, class Key>
class PointCall final : public batching::internal::Call {
 public:
  using Result = std::invoke_result_t<const F&, std::span<const Tensor>>;
  static constexpr size_t kMaxShared = 4;

  PointCall(const char* op, std::span<const Tensor> rows, std::initializer_list<const Tensor*> shared, const F& f,
            const Key& key)
      : Call(batching::kRows, op, typeid(PointCall), false, 2), op_(op), f_(f), key_(key) {
    for (const Tensor& tensor : rows) add(&tensor);
    size_t i = 0;
    for (const Tensor* tensor : shared) shared_[i++] = TensorImpl::of(*tensor);
  }

  void run(std::span<const Tensor> rows) override { result_.emplace(f_(rows)); }
  std::vector<Tensor> outputs() const override {
    if constexpr (std::is_same_v<Result, Tensor>)
      return {*result_};
    else
      return {result_->h, result_->c};
  }
  void take(const Call&, std::span<std::vector<Tensor>> outputs, size_t at) override {
    if constexpr (std::is_same_v<Result, Tensor>)
      result_.emplace(std::move(outputs[0][at]));
    else
      result_.emplace(CellState{std::move(outputs[0][at]), std::move(outputs[1][at])});
  }
  bool same_arguments(const Call& other) const override {
    const auto& call = static_cast<const PointCall&>(other);
    return shared_ == call.shared_ && key_ == call.key_;
  }
  std::string label() const override { return op_; }
  Result result() { return std::move(*result_); }

 private:
  const char* const op_;
  const F& f_;
  const Key key_;
  std::array<const TensorImpl*, kMaxShared> shared_{};
  std::optional<Result> result_;
};

/// Whether calls of the calling thread may wait for others.
class Point {
 public:
  Point() : meeting_(op_modes.meets ? batching::internal::meeting() : nullptr) {}
  explicit operator bool() const { return meeting_; }

  /// f(rows), perhaps as rows of a call with those of others. It must not come here again.
  template <class F, class Key = int>
  auto join(const char* op, std::span<const Tensor> rows, std::initializer_list<const Tensor*> shared, const F& f,
            const Key& key = {}) const {
    PointCall<F, Key> call(op, rows, shared, f, key);
    if (meeting_->wait(call)) return call.result();
    const batching::internal::Apart apart;
    return f(rows);
  }
  template <class F, class Key = int>
  auto join(const char* op, std::initializer_list<Tensor> rows, std::initializer_list<const Tensor*> shared, const F& f,
            const Key& key = {}) const {
    return join(op, std::span(rows.begin(), rows.size()), shared, f, key);
  }

 private:
  batching::internal::Meeting* const meeting_;
};

/// May it be what many examples have in common? A parameter is: a leaf that wants a gradient.
inline bool is_weight(const Tensor& x) { return x.defined() && TensorImpl::of(x)->requires_grad; }

}  // namespace reel
