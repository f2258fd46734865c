#pragma once
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/reel.h"

// Calls of reel functions with arguments that are words of text: call(f) reads each word as the type of f's parameter.
// Random programs (interpreter.cpp) and the breadth benchmark (bench/breadth.cpp) are made of them.
namespace reel {

using Values = std::map<int, Tensor>;
using Tensors = std::vector<Tensor>;

/// A word is %3 (value number 3), _ (absent), a number, true, false, the C++ name of an enumerator, 1:5:2 (a slice),
/// or a list of words [1,2,3].
class Word {
 public:
  Word(std::string text, const Values& values) : text_(std::move(text)), values_(values) {}

  bool absent() const { return text_ == "_"; }
  bool is_list() const { return text_.front() == '['; }
  bool is_value() const { return text_.front() == '%'; }
  bool is_integer() const { return text_.find_first_not_of("-0123456789") == std::string::npos; }
  bool is_bool() const { return text_ == "true" || text_ == "false"; }
  const std::string& text() const { return text_; }

  const Tensor& value() const {
    const auto found = values_.find(std::atoi(text_.c_str() + 1));
    if (found == values_.end()) throw Missing();
    return found->second;
  }
  Scalar number() const {
    if (is_bool()) return text_ == "true";
    if (is_integer()) return static_cast<int64_t>(std::strtoll(text_.c_str(), nullptr, 10));
    char* end = nullptr;
    const double number = std::strtod(text_.c_str(), &end);
    REEL_CHECK(!*end, "differential: expected a number, got ", text_);
    return number;
  }
  std::vector<Word> list() const {
    std::vector<Word> words;
    for (size_t begin = 1, end; begin < text_.size() - 1; begin = end + 1) {
      end = std::min(text_.find(',', begin), text_.size() - 1);
      words.emplace_back(text_.substr(begin, end - begin), values_);
    }
    return words;
  }

  /// The operand is the result of a statement that has failed.
  struct Missing {};

 private:
  std::string text_;
  const Values& values_;
};

template <class T>
struct Names {
  static const std::map<std::string_view, T> all;
};
template <>
inline const std::map<std::string_view, DType> Names<DType>::all{
    {"kBool", kBool},       {"kUInt8", kUInt8},       {"kInt32", kInt32},     {"kInt64", kInt64},
    {"kFloat16", kFloat16}, {"kBFloat16", kBFloat16}, {"kFloat32", kFloat32}, {"kFloat64", kFloat64}};
template <>
inline const std::map<std::string_view, Reduction> Names<Reduction>::all{
    {"kMean", kMean}, {"kSum", kSum}, {"kNoReduction", kNoReduction}, {"kBatchMean", kBatchMean}};
template <>
inline const std::map<std::string_view, Reduce> Names<Reduce>::all{{"Reduce::kSum", Reduce::kSum},
                                                                   {"Reduce::kProd", Reduce::kProd},
                                                                   {"Reduce::kMean", Reduce::kMean},
                                                                   {"Reduce::kMax", Reduce::kMax},
                                                                   {"Reduce::kMin", Reduce::kMin}};
template <>
inline const std::map<std::string_view, PadMode> Names<PadMode>::all{
    {"kConstant", kConstant}, {"kReflect", kReflect}, {"kReplicate", kReplicate}, {"kCircular", kCircular}};
template <>
inline const std::map<std::string_view, GridIndexing> Names<GridIndexing>::all{{"kIJ", kIJ}, {"kXY", kXY}};
template <>
inline const std::map<std::string_view, Interpolation> Names<Interpolation>::all{
    {"kNearest", kNearest},   {"kNearestExact", kNearestExact}, {"Interpolation::kLinear", Interpolation::kLinear},
    {"kBilinear", kBilinear}, {"kTrilinear", kTrilinear},       {"kBicubic", kBicubic},
    {"kArea", kArea}};
template <>
inline const std::map<std::string_view, GridPadding> Names<GridPadding>::all{
    {"GridPadding::kZeros", GridPadding::kZeros},
    {"GridPadding::kBorder", GridPadding::kBorder},
    {"GridPadding::kReflection", GridPadding::kReflection}};
template <>
inline const std::map<std::string_view, linalg::QRMode> Names<linalg::QRMode>::all{
    {"linalg::kReduced", linalg::kReduced}, {"linalg::kComplete", linalg::kComplete}};
template <>
inline const std::map<std::string_view, linalg::MatrixNorm> Names<linalg::MatrixNorm>::all{
    {"linalg::kFrobenius", linalg::kFrobenius}, {"linalg::kNuclear", linalg::kNuclear}};

template <class T>
T read(const Word& word);

template <class T>
std::vector<T> read_list(const Word& word) {
  std::vector<T> all;
  for (const Word& one : word.list()) all.push_back(read<T>(one));
  return all;
}

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;
template <class T>
inline constexpr int dimensions_of = 0;
template <int N>
inline constexpr int dimensions_of<PerDim<N>> = N;

template <class T>
T read(const Word& word) {
  if constexpr (std::is_same_v<T, Tensor>) {
    if (word.absent()) return {};
    return word.is_value() ? word.value() : Tensor(word.number());
  } else if constexpr (std::is_same_v<T, Bound>) {
    if (word.absent()) return {};
    return word.is_value() ? Bound(word.value()) : Bound(word.number());
  } else if constexpr (std::is_same_v<T, TensorIndex>) {
    const size_t colon = word.text().find(':');
    if (colon != std::string::npos) {
      const size_t second = word.text().find(':', colon + 1);
      const auto bound = [&](size_t begin, size_t end) -> std::optional<int64_t> {
        if (begin == end) return {};
        return std::atoll(word.text().substr(begin, end - begin).c_str());
      };
      return Slice(bound(0, colon), bound(colon + 1, second), std::atoll(word.text().c_str() + second + 1));
    }
    if (word.is_value()) return word.value();
    if (word.text() == "...") return kEllipsis;
    if (word.absent()) return kNone;
    return word.number().to<int64_t>();
  } else if constexpr (is_optional<T>) {
    if (word.absent()) return {};
    return read<typename T::value_type>(word);
  } else if constexpr (is_vector<T>) {
    return read_list<typename T::value_type>(word);
  } else if constexpr (std::is_same_v<T, Shape>) {
    return Shape(read_list<int64_t>(word));
  } else if constexpr (std::is_same_v<T, Dims>) {
    Dims dims;
    dims.dims = word.is_list() ? Shape(read_list<int64_t>(word)) : Shape{read<int64_t>(word)};
    return dims;
  } else if constexpr (dimensions_of<T> > 0) {
    T sizes = 0;
    for (int i = 0; i < dimensions_of<T>; ++i)
      sizes.values[i] = read<int64_t>(word.is_list() ? word.list().at(i) : word);
    return sizes;
  } else if constexpr (std::is_same_v<T, Scalar>) {
    return word.number();
  } else if constexpr (std::is_arithmetic_v<T>) {
    return word.number().template to<T>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    return word.text();
  } else {
    return Names<T>::all.at(word.text());
  }
}

/// What is held while a parameter of this type refers to it.
template <class T>
struct Held {
  using type = T;
};
template <>
struct Held<TensorList> {
  using type = Tensors;
};
template <>
struct Held<std::string_view> {
  using type = std::string;
};

///@{
/// What a function returns, as tensors.
inline Tensors results(Tensor x) { return {std::move(x)}; }
inline Tensors results(Tensors all) { return all; }
inline Tensors results(bool x) { return {full({}, x)}; }
inline Tensors results(ValuesIndices x) { return {x.values, x.indices}; }
inline Tensors results(MinMax x) { return {x.min, x.max}; }
inline Tensors results(Moments x) { return {x.spread, x.mean}; }
inline Tensors results(Unique x) { return {x.values, x.inverse, x.counts}; }
inline Tensors results(linalg::SignLogDet x) { return {x.sign, x.logabsdet}; }
inline Tensors results(linalg::QR x) { return {x.q, x.r}; }
///@}

/// A call whose arguments have been read; it can be repeated.
using PreparedCall = std::function<Tensors()>;
/// Reads the arguments of a call.
using Call = std::function<PreparedCall(const std::vector<Word>&)>;

template <class... A>
struct Caller {
  template <class F>
  static Call of(F f) {
    return [f](const std::vector<Word>& words) {
      REEL_CHECK(words.size() == sizeof...(A), "differential: ", sizeof...(A), " arguments expected, got ",
                 words.size());
      return prepare(f, words, std::index_sequence_for<A...>());
    };
  }
  template <class F, size_t... I>
  static PreparedCall prepare(F f, const std::vector<Word>& words, std::index_sequence<I...>) {
    using Arguments = std::tuple<typename Held<std::decay_t<A>>::type...>;
    // The braces read the words in order.
    return [f, held = Arguments{read<typename Held<std::decay_t<A>>::type>(words[I])...}] {
      return results(f(std::get<I>(held)...));
    };
  }
};
///@{
/// f with its arguments read from words: a function, or a member, whose first word is the tensor.
template <class R, class... A>
Call call(R (*f)(A...)) {
  return Caller<A...>::of(f);
}
template <class R, class C, class... A>
Call call(R (C::*f)(A...) const) {
  return Caller<Tensor, A...>::of([f](const Tensor& x, const auto&... a) { return (x.*f)(a...); });
}
template <class R, class C, class... A>
Call call(R (C::*f)(A...)) {
  return Caller<Tensor, A...>::of([f](Tensor x, const auto&... a) { return (x.*f)(a...); });
}
///@}

struct Op {
  std::string_view name;  // as in differential/ops.py
  Call call;
};
/// The ops that programs may name.
const std::vector<Op>& ops();

// These are rows of such tables, for a function, a member and an expression.
#define OP(name) \
  { #name, call(name) }
#define MEMBER(name) \
  { #name, call(&Tensor::name) }
#define CALL(name, parameters, expression)            \
  {                                                   \
    name, call(+[] parameters { return expression; }) \
  }
using In = const Tensor&;

}  // namespace reel
