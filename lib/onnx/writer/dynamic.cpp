// Chooses the sizes at which a model is run, so that comparing the runs tells which sizes are computed from which.
#include "lib/onnx/writer/dynamic.h"

#include <algorithm>
#include <set>

#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::onnx::writer {
namespace {

constexpr size_t kRuns = 4;

/// Returns whether b is a multiple of a plus a constant in the runs i, j and k.
bool is_affine(const Number& a, const Number& b, size_t i, size_t j, size_t k) {
  __extension__ using Wide = __int128;
  return Wide{a[j] - a[i]} * (b[k] - b[i]) == Wide{a[k] - a[i]} * (b[j] - b[i]);
}
/// Returns whether it is one in any three of the first four runs: then the remaining one alone would tell a formula of
/// a from one of b.
bool is_nearly_affine(const Number& a, const Number& b) {
  return is_affine(a, b, 0, 1, 2) || is_affine(a, b, 0, 1, 3) || is_affine(a, b, 0, 2, 3) || is_affine(a, b, 1, 2, 3);
}
/// Returns whether it is one in all runs.
bool is_affine(const Number& a, const Number& b) {
  for (size_t j = 1; j < a.size(); ++j)
    for (size_t k = j + 1; k < a.size(); ++k)
      if (!is_affine(a, b, 0, j, k)) return false;
  return true;
}

struct Product {
  Number values;
  int factors;
};
Product operator*(const Product& a, const Product& b) {
  Product result{a.values, a.factors + b.factors};
  for (size_t r = 0; r < a.values.size(); ++r) result.values[r] *= b.values[r];
  return result;
}

/// Adds the products of up to three sizes that have `size` among them, the others being `products`. Adds nothing and
/// returns false where one of them can be mistaken for another.
bool add_products(const Number& size, std::vector<Product>& products) {
  std::vector<Product> all = products;
  Product power{size, 1};
  for (; power.factors <= 3; power = power * Product{size, 1}) {
    all.push_back(power);
    for (const Product& other : products)
      if (power.factors + other.factors <= 3) all.push_back(power * other);
  }
  for (size_t i = products.size(); i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (is_nearly_affine(all[i].values, all[j].values)) return false;
  products = std::move(all);
  return true;
}

/// Returns sizes for a dimension of `size` elements in the example: two that are a little larger, and one of more than
/// twice that. Divisions by 2, 3 and 4 leave all of their remainders, so that what is rounded is no multiple.
Number candidate(int64_t size, int64_t i) {
  const int64_t a = i % 10, b = i / 10 % 10, c = i / 100;
  const int64_t twice = size + 3 + (4 - size % 4) % 4;  // 3 more than a multiple of 4
  return {size, size + 1 + 4 * a, size + 2 + 4 * b, size + twice + 4 * c};
}
bool has_all_remainders(const Number& sizes) {
  std::set<int64_t> of_three;
  for (const int64_t size : sizes) of_three.insert(size % 3);
  return of_three.size() == 3;
}

}  // namespace

Dynamic::Dynamic(TensorList inputs, const std::vector<DynamicDim>& dims) {
  for (const Tensor& input : inputs) names_.emplace_back(static_cast<size_t>(input.dim()));
  for (const DynamicDim& d : dims) {
    REEL_CHECK(d.input >= 0 && static_cast<size_t>(d.input) < inputs.size(), "onnx::save: dynamic: input ", d.input,
               ", of ", inputs.size());
    const Tensor& input = inputs[static_cast<size_t>(d.input)];
    const int64_t dim = d.dim < 0 ? d.dim + input.dim() : d.dim;
    REEL_CHECK(dim >= 0 && dim < input.dim(), "onnx::save: dynamic: dimension ", d.dim, " of input ", d.input,
               ", whose shape is ", input.shape());
    REEL_CHECK(!d.name.empty(), "onnx::save: dynamic: dimension ", d.dim, " of input ", d.input, " has no name");
    const int64_t size = input.size(dim);
    REEL_CHECK(size > 0, "onnx::save: dynamic: ", d.name, " is 0 in the example");
    names_[static_cast<size_t>(d.input)][static_cast<size_t>(dim)] = d.name;
    auto known = std::find_if(dims_.begin(), dims_.end(), [&](const Dim& other) { return other.name == d.name; });
    if (known == dims_.end()) known = dims_.insert(known, {d.name, {size}, true});
    REEL_CHECK(known->sizes[0] == size, "onnx::save: dynamic: ", d.name, " is ", known->sizes[0], " and ", size);
    if (d.sizes.empty()) continue;
    REEL_CHECK(known->is_free, "onnx::save: dynamic: the sizes of ", d.name, " are given twice");
    known->is_free = false;
    known->sizes.insert(known->sizes.end(), d.sizes.begin(), d.sizes.end());
  }
  check_sizes();
  choose_sizes();
}

void Dynamic::check_sizes() const {
  for (const Dim& dim : dims_) {
    if (dim.is_free) continue;
    const std::set<int64_t> distinct(dim.sizes.begin(), dim.sizes.end());
    REEL_CHECK(distinct.size() >= kRuns && *distinct.begin() > 0, "onnx::save: dynamic: the sizes of ", dim.name,
               " are not at least three positive ones beside the example's, ", dim.sizes[0]);
  }
}

void Dynamic::choose_sizes() {
  size_t runs = kRuns;
  for (const Dim& dim : dims_) runs = std::max(runs, dim.sizes.size());
  // The sizes of a list that is shorter than another one are used again.
  const auto repeat = [&](Number& sizes) {
    for (size_t given = sizes.size(); sizes.size() < runs;) sizes.push_back(sizes[sizes.size() - given + 1]);
  };
  std::vector<Product> products;
  for (Dim& dim : dims_)
    if (!dim.is_free) repeat(dim.sizes), products.push_back({dim.sizes, 1});
  for (Dim& dim : dims_) {
    if (!dim.is_free) continue;
    constexpr int64_t kCandidates = 1000;
    bool found = false;
    for (int64_t i = 0; i < kCandidates && !found; ++i) {
      Number sizes = candidate(dim.sizes[0], i);
      if (!has_all_remainders(sizes)) continue;
      repeat(sizes);
      found = add_products(sizes, products);
      if (found) dim.sizes = sizes;
    }
    REEL_CHECK(found, "onnx::save: dynamic: no sizes of ", dim.name,
               " are found that tell it from the other dimensions: give it some");
  }
  for (size_t i = 0; i < dims_.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      REEL_CHECK(!is_affine(dims_[i].sizes, dims_[j].sizes), "onnx::save: dynamic: the sizes of ", dims_[j].name,
                 " and ", dims_[i].name, " are a multiple of each other plus a constant in all runs: give other ones");
}

std::vector<int64_t> Dynamic::sizes(size_t run) const {
  std::vector<int64_t> all;
  for (const Dim& dim : dims_) all.push_back(dim.sizes[run]);
  return all;
}

std::string Dynamic::show(const std::vector<int64_t>& sizes) const {
  std::string text;
  for (size_t i = 0; i < dims_.size(); ++i) text += (i ? ", " : "") + dims_[i].name + " = " + std::to_string(sizes[i]);
  return text;
}

std::string Dynamic::find(const Number& sizes) const {
  for (const Dim& dim : dims_)
    if (dim.sizes == sizes) return dim.name;
  return "";
}

std::vector<Tensor> Dynamic::inputs(TensorList examples, const std::vector<int64_t>& sizes) const {
  NoGrad guard;
  std::vector<Tensor> all;
  for (size_t i = 0; i < examples.size(); ++i) {
    Tensor x = examples[i].detach().clone();
    for (int d = 0; d < x.dim(); ++d)
      for (size_t k = 0; k < dims_.size(); ++k)
        if (names_[i][static_cast<size_t>(d)] == dims_[k].name)
          x = index_select(x, d, remainder(arange(sizes[k], {.device = kCPU}), x.size(d)));
    all.push_back(x.contiguous());
  }
  return all;
}

}  // namespace reel::onnx::writer
