#include <algorithm>
#include <string>

#include "lib/functors/pointwise.h"
#include "lib/ops/internal.h"

namespace reel {
namespace {

/// A tensor whose dimensions have names: letters, or for those of an ellipsis '0' (the last) and up.
struct Named {
  std::string labels;
  Tensor tensor;

  bool has(char label) const { return labels.find(label) != std::string::npos; }
  int64_t size(char label) const { return has(label) ? tensor.size(static_cast<int64_t>(labels.find(label))) : 1; }

  /// With exactly these dimensions in this order, those that it lacks of size 1.
  Tensor arranged(const std::string& order) const {
    Shape present;
    for (const char label : order)
      if (has(label)) present.push_back(static_cast<int64_t>(labels.find(label)));
    Tensor y = tensor.permute(present);
    for (size_t d = 0; d < order.size(); ++d)
      if (!has(order[d])) y = y.unsqueeze(static_cast<int64_t>(d));
    return y;
  }
};

Named sum_out(const Named& x, const std::string& gone) {
  if (gone.empty()) return x;
  Dims dims;
  Named y;
  for (size_t d = 0; d < x.labels.size(); ++d)
    if (gone.find(x.labels[d]) != std::string::npos)
      dims.dims.push_back(static_cast<int64_t>(d));
    else
      y.labels += x.labels[d];
  y.tensor = sum(x.tensor, dims);
  return y;
}

/// The product of a and b, with the labels in `keep`, as one batch of matrix products.
Named contract(const Named& a, const Named& b, const std::string& keep) {
  const auto kept = [&](char label) { return keep.find(label) != std::string::npos; };
  std::string batch, left, right, inner, only_a, only_b;
  for (const char label : a.labels) {
    if (!b.has(label))
      (kept(label) ? left : only_a) += label;
    else
      (kept(label) ? batch : inner) += label;
  }
  for (const char label : b.labels)
    if (!a.has(label)) (kept(label) ? right : only_b) += label;
  Named x = sum_out(a, only_a), y = sum_out(b, only_b);
  const DType dtype = promote_types(x.tensor.dtype(), y.tensor.dtype());
  if (!is_floating_point(dtype)) x.tensor = x.tensor.to(dtype), y.tensor = y.tensor.to(dtype);

  Shape shape, shape_x, shape_y;
  int64_t n_batch = 1, n_left = 1, n_right = 1, n_inner = 1;
  const auto add = [&](const std::string& labels, int64_t& n, bool in_result, bool in_x, bool in_y) {
    for (const char label : labels) {
      const int64_t size = x.size(label) == 1 ? y.size(label) : x.size(label);
      n *= size;
      if (in_result) shape.push_back(size);
      if (in_x) shape_x.push_back(size);
      if (in_y) shape_y.push_back(size);
    }
  };
  add(batch, n_batch, true, true, true);
  add(left, n_left, true, true, false);
  add(inner, n_inner, false, true, true);
  add(right, n_right, true, false, true);
  const Tensor m = x.arranged(batch + left + inner).expand(shape_x).reshape({n_batch, n_left, n_inner});
  const Tensor n = y.arranged(batch + inner + right).expand(shape_y).reshape({n_batch, n_inner, n_right});
  return {batch + left + right, bmm(m, n).view(shape)};
}

/// The operand's dimensions by name; twice the same letter is a diagonal.
Named parse_operand(std::string_view text, const Tensor& x, size_t position) {
  Named y{{}, x};
  const size_t dots = text.find("...");
  const int64_t letters = static_cast<int64_t>(text.size()) - (dots == text.npos ? 0 : 3);
  const int64_t rest = x.dim() - letters;
  REEL_CHECK(dots == text.npos ? rest == 0 : rest >= 0, "einsum: \"", text, "\" names ", letters,
             " dimensions, operand ", position, " has shape ", x.shape());
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == dots) {
      for (int64_t k = rest; k-- > 0;) y.labels += static_cast<char>('0' + k);
      i += 2;
      continue;
    }
    REEL_CHECK(std::isalpha(static_cast<unsigned char>(text[i])), "einsum: '", text[i], "' in \"", text,
               "\" is no letter");
    y.labels += text[i];
  }
  for (size_t i = 0; i < y.labels.size(); ++i) {
    const size_t again = y.labels.find(y.labels[i], i + 1);
    if (again == std::string::npos) continue;
    REEL_CHECK(y.tensor.size(static_cast<int64_t>(i)) == y.tensor.size(static_cast<int64_t>(again)), "einsum: '",
               y.labels[i], "' has size ", y.tensor.size(static_cast<int64_t>(i)), " and ",
               y.tensor.size(static_cast<int64_t>(again)), " in operand ", position, " of shape ", x.shape());
    y.tensor = diagonal(y.tensor, 0, static_cast<int64_t>(i), static_cast<int64_t>(again));
    const char label = y.labels[i];  // the diagonal comes last
    y.labels.erase(again, 1).erase(i, 1) += label;
    i = static_cast<size_t>(-1);
  }
  return y;
}

void check_sizes(const std::vector<Named>& operands) {
  std::string labels;
  for (const Named& x : operands) labels += x.labels;
  for (const char label : labels) {
    int64_t size = 1;
    for (const Named& x : operands) {
      const int64_t own = x.size(label);
      REEL_CHECK(own == 1 || size == 1 || own == size, "einsum: ",
                 label <= '9' ? std::string("a dimension of the ellipsis") : "'" + std::string(1, label) + "'",
                 " has size ", size, " and ", own);
      if (own != 1) size = own;
    }
  }
}

/// What the equation says of the result, or what it does not say.
std::string result_labels(std::string_view equation, const std::vector<Named>& operands) {
  std::string all, ellipsis;
  for (const Named& x : operands) all += x.labels;
  for (char label = '0' + kMaxDims; label-- > '0';)
    if (all.find(label) != std::string::npos) ellipsis += label;
  const size_t arrow = equation.find("->");
  std::string labels;
  if (arrow == equation.npos) {
    labels = ellipsis;
    std::string once;
    for (const char label : all)
      if (label > '9' && std::count(equation.begin(), equation.end(), label) == 1) once += label;
    std::sort(once.begin(), once.end());
    return labels + once;
  }
  std::string_view text = equation.substr(arrow + 2);
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 3) == "...") {
      labels += ellipsis;
      i += 2;
      continue;
    }
    REEL_CHECK(all.find(text[i]) != std::string::npos, "einsum: no operand has the result's '", text[i], "', \"",
               equation, "\"");
    REEL_CHECK(labels.find(text[i]) == std::string::npos, "einsum: the result has '", text[i], "' twice, \"", equation,
               "\"");
    labels += text[i];
  }
  return labels;
}

/// The equation has no blanks.
Tensor summed(const std::string& equation, std::span<const Tensor> tensors) {
  std::vector<Named> operands;
  std::string_view rest = std::string_view(equation).substr(0, equation.find("->"));
  for (size_t i = 0;; ++i) {
    const size_t comma = rest.find(',');
    REEL_CHECK(i < tensors.size(), "einsum: \"", equation, "\" has more operands than the ", tensors.size(), " given");
    view_of(tensors[i], "einsum");
    operands.push_back(parse_operand(rest.substr(0, comma), tensors[i], i));
    if (comma == rest.npos) break;
    rest = rest.substr(comma + 1);
  }
  REEL_CHECK(operands.size() == tensors.size(), "einsum: \"", equation, "\" has ", operands.size(), " operands, given ",
             tensors.size());
  check_sizes(operands);
  const std::string result = result_labels(equation, operands);

  Named y = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    std::string keep = result;
    for (size_t later = i + 1; later < operands.size(); ++later) keep += operands[later].labels;
    y = contract(y, operands[i], keep);
  }
  std::string gone;
  for (const char label : y.labels)
    if (result.find(label) == std::string::npos) gone += label;
  const Tensor arranged = sum_out(y, gone).arranged(result);
  return operands.size() > 1 ? arranged.contiguous() : arranged;  // of one operand it may be a view
}

}  // namespace

Tensor einsum(std::string_view equation_in, TensorList tensors) {
  std::string equation(equation_in);
  std::erase(equation, ' ');
  return call("einsum", tensors, {}, [&](std::span<const Tensor> tensors) { return summed(equation, tensors); });
}

// ---- other products -------------------------------------------------------------------------------------------------

Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int64_t>& dims_a,
                 const std::vector<int64_t>& dims_b) {
  const View &av = view_of(a, "tensordot"), &bv = view_of(b, "tensordot");
  REEL_CHECK(dims_a.size() == dims_b.size(), "tensordot: ", dims_a.size(), " dimensions of a and ", dims_b.size(),
             " of b");
  // What is not summed over, in order.
  const auto others = [](const Shape& shape, const Shape& summed) {
    Shape list;
    for (int d = 0; d < shape.size(); ++d)
      if (std::find(summed.begin(), summed.end(), d) == summed.end()) list.push_back(d);
    return list;
  };
  Shape sum_a, sum_b;
  int64_t inner = 1;
  for (size_t i = 0; i < dims_a.size(); ++i) {
    sum_a.push_back(wrap_dim(dims_a[i], av.shape.size(), "tensordot"));
    sum_b.push_back(wrap_dim(dims_b[i], bv.shape.size(), "tensordot"));
    const int64_t n = av.shape[static_cast<int>(sum_a.back())], m = bv.shape[static_cast<int>(sum_b.back())];
    REEL_CHECK(n == m, "tensordot: dimension ", dims_a[i], " of ", av.shape, " and dimension ", dims_b[i], " of ",
               bv.shape, " differ");
    inner *= n;
  }
  const Shape free_a = others(av.shape, sum_a), free_b = others(bv.shape, sum_b);
  Shape order_a = free_a, order_b = sum_b, shape;
  for (const int64_t d : sum_a) order_a.push_back(d);
  for (const int64_t d : free_b) order_b.push_back(d);
  int64_t rows = 1, columns = 1;
  for (const int64_t d : free_a) shape.push_back(av.shape[static_cast<int>(d)]), rows *= shape.back();
  for (const int64_t d : free_b) shape.push_back(bv.shape[static_cast<int>(d)]), columns *= shape.back();
  REEL_CHECK(order_a.size() == av.shape.size() && order_b.size() == bv.shape.size(),
             "tensordot: a dimension is named twice");
  return mm(a.permute(order_a).reshape({rows, inner}), b.permute(order_b).reshape({inner, columns})).view(shape);
}

Tensor tensordot(const Tensor& a, const Tensor& b, int64_t dims) {
  const int64_t rank = view_of(a, "tensordot").shape.size();
  REEL_CHECK(dims >= 0 && dims <= rank && dims <= view_of(b, "tensordot").shape.size(), "tensordot: ", dims,
             " dimensions of ", a.shape(), " and ", b.shape());
  std::vector<int64_t> last, first;
  for (int64_t d = 0; d < dims; ++d) last.push_back(rank - dims + d), first.push_back(d);
  return tensordot(a, b, last, first);
}

Tensor inner(const Tensor& a, const Tensor& b) {
  const View &av = view_of(a, "inner"), &bv = view_of(b, "inner");
  if (av.shape.empty() || bv.shape.empty()) return a * b;
  REEL_CHECK(av.shape.back() == bv.shape.back(), "inner: last sizes differ, ", av.shape, " and ", bv.shape);
  return tensordot(a, b, {-1}, {-1});
}

namespace {

/// Returns left · right, of shapes [a0, 1, a1, 1, …] and [1, b0, 1, b1, …], by a multiplication for each element of the
/// last dimension, which is short: its vectors lie along the last dimension of a.
Tensor multiply_by_columns(const Tensor& left, const Tensor& right) {
  const NoGrad guard;
  const Tensor y = make_tensor(broadcast_shapes(left.shape(), right.shape(), "kron"), left.dtype(), left.device());
  const Tensor factors = left.squeeze(-1);
  const functors::Mul mul;
  for (int64_t i = 0; i < y.size(-1); ++i) {
    const Tensor column = y.select(-1, i);
    const Shape& shape = view_of(column).shape;
    kernels_of(y).binary[functors::index_of<functors::BinaryList, functors::Mul>](
        &mul, expand_view(view_of(factors), shape), expand_view(view_of(right.select(-1, i)), shape), view_of(column));
  }
  return y;
}

/// Returns the gradient of a Kronecker product as a matrix [elements of b, elements of a].
Tensor matrix_of_grad(const Tensor& g, const Shape& pairs, int64_t size_of_b) {
  Shape order;
  for (int d = 1; d < pairs.size(); d += 2) order.push_back(d);
  for (int d = 0; d < pairs.size(); d += 2) order.push_back(d);
  return g.reshape(pairs).permute(order).reshape({size_of_b, pairs.numel() / size_of_b});
}

}  // namespace

Tensor kron(const Tensor& a, const Tensor& b) {
  const int rank = std::max(view_of(a, "kron").shape.size(), view_of(b, "kron").shape.size());
  // Dimension d of the result is that of a, then that of b.
  Shape shape_a, shape_b, pairs, shape;
  for (int d = 0; d < rank; ++d) {
    const auto size = [&](const Tensor& x) {
      const int own = d - (rank - static_cast<int>(x.dim()));
      return own < 0 ? 1 : x.size(own);
    };
    shape_a.push_back(size(a)), shape_a.push_back(1);
    shape_b.push_back(1), shape_b.push_back(size(b));
    pairs.push_back(size(a)), pairs.push_back(size(b));
    shape.push_back(size(a) * size(b));
  }
  const Tensor left = a.reshape(shape_a), right = b.reshape(shape_b);
  constexpr int64_t kShort = 8;
  const View &av = view_of(a), &bv = view_of(b);
  const bool by_columns = rank > 0 && pairs.back() > 1 && pairs.back() <= kShort && pairs[2 * rank - 2] >= kShort &&
                          av.numel > 0 && bv.numel > 0 && is_floating_point(av.dtype) && av.dtype == bv.dtype &&
                          av.host && bv.host && !is_tracing();
  if (!by_columns) return (left * right).reshape(shape);
  const Tensor y = multiply_by_columns(left, right).view(shape);
  if (recording(a, b))
    record("kron", y, inputs(a, b),
           [a = saved_if(needs_grad(b), a), b = saved_if(needs_grad(a), b), a_shape = av.shape, b_shape = bv.shape,
            pairs](Backward& back) {
             const Tensor g = matrix_of_grad(back.grad(), pairs, b_shape.numel());
             if (back.needs(0)) back.set(0, matmul(back.get(b).flatten(), g).view(a_shape));
             if (back.needs(1)) back.set(1, matmul(g, back.get(a).flatten()).view(b_shape));
           });
  return y;
}

Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias) {
  const View& wv = view_of(weight, "bilinear");
  REEL_CHECK(wv.shape.size() == 3, "bilinear: the weight's shape is ", wv.shape, ", not [out, in1, in2]");
  const Shape &s1 = view_of(x1, "bilinear").shape, &s2 = view_of(x2, "bilinear").shape;
  REEL_CHECK(!s1.empty() && !s2.empty() && s1.back() == wv.shape[1] && s2.back() == wv.shape[2], "bilinear: x1 ", s1,
             " and x2 ", s2, " do not fit the weight's shape ", wv.shape);
  // Operands of different ranks are broadcast, so that dimension 0 is not that of the rows of both.
  const Op op = s1.size() == s2.size() ? Op("bilinear") : Op("bilinear(broadcast)");
  return call(op, {x1, x2, weight, bias}, {},
              [](const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias) {
                const Tensor y = einsum("...i,kij,...j->...k", {x1, weight, x2});
                return bias.defined() ? y + bias : y;
              });
}

Tensor mv(const Tensor& a, const Tensor& x) {
  REEL_CHECK(view_of(a, "mv").shape.size() == 2 && view_of(x, "mv").shape.size() == 1,
             "mv: expected a matrix and a vector, got shapes ", a.shape(), " and ", x.shape());
  return matmul(a, x);
}

}  // namespace reel
