#include <unistd.h>

#include <catch2/catch.hpp>
#include <climits>
#include <cstdio>

#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/wrong_calls.h"

namespace reel {
namespace {

// clang-format off
const WrongCall kWrongCalls[] = {
// ---- shapes that do not fit
{[](World& w) { add(w.matrix, w.vector); }, "add: shapes [3, 4] and [3] do not broadcast"},
{[](World& w) { w.matrix / w.doubles; }, "div: shapes [3, 4] and [4, 3] do not broadcast"},
{[](World& w) { maximum(w.cube, ones({2})); }, "maximum: shapes [2, 3, 4] and [2] do not broadcast"},
{[](World& w) { where(w.mask, w.matrix, 0); }, "where: shapes [3] and [3, 4] do not broadcast"},
{[](World& w) { eq(w.matrix, w.vector); }, "eq: shapes [3, 4] and [3] do not broadcast"},
{[](World& w) { mm(w.matrix, w.matrix); }, "mm: inner sizes differ, [3, 4] x [3, 4]"},
{[](World& w) { mm(w.matrix, w.vector); }, "mm: expected two matrices, got shapes [3, 4] and [3]"},
{[](World& w) { bmm(w.cube, w.cube); }, "bmm: inner sizes differ, [2, 3, 4] x [2, 3, 4]"},
{[](World& w) { bmm(w.cube, w.matrix); },
 "bmm: expected two equally long batches of matrices, got shapes [2, 3, 4] and [3, 4]"},
{[](World& w) { matmul(w.cube, w.vector); }, "matmul: inner sizes differ, [2, 3, 4] x [3]"},
{[](World&) { matmul(ones({3, 2, 4}), ones({2, 4, 5})); }, "matmul: shapes [3] and [2] do not broadcast"},
{[](World& w) { matmul(w.matrix, w.number); }, "matmul: 0-d operand, shapes [3, 4] and []"},
{[](World& w) { matmul(w.matrix, w.doubles); }, "matmul: operands of different types, float32 and float64"},
{[](World& w) { dot(w.vector, ones({4})); }, "dot: expected two vectors of one length, got shapes [3] and [4]"},
{[](World& w) { outer(w.matrix, w.vector); }, "outer: expected two vectors, got shapes [3, 4] and [3]"},
{[](World& w) { addmm(w.vector, w.matrix, w.matrix.t()[0]); }, "mm: expected two matrices, got shapes [3, 4] and [3]"},
{[](World& w) { addmm(w.matrix, w.matrix, w.matrix.t()); }, "addmm: shapes [3, 4] and [3, 3] do not broadcast"},
{[](World& w) { linear(w.cube, w.matrix.t()); }, "linear: x of shape [2, 3, 4] does not fit the weight's shape [4, 3]"},
{[](World& w) { linear(w.matrix, w.vector); }, "linear: x of shape [3, 4] does not fit the weight's shape [3]"},
{[](World& w) { linear(w.matrix, w.matrix, ones({4})); }, "linear: the bias has shape [4], the weight [3, 4]"},
{[](World& w) { cat({w.matrix, w.cube}); }, "cat: shapes [3, 4] and [2, 3, 4] differ in more than dimension 0"},
{[](World& w) { cat({w.matrix, w.leaf}, 0); }, "cat: shapes [3, 4] and [2, 3] differ in more than dimension 0"},
{[](World&) { cat({}); }, "cat: no tensors"},
{[](World& w) { cat({w.number, w.number}); }, "cat: 0-d tensors cannot be joined; stack them"},
{[](World& w) { stack({w.vector, w.number}); }, "stack: shapes [3] and [] differ"},
{[](World&) { stack({}); }, "stack: no tensors"},
{[](World& w) { split(w.matrix, {1, 1}, 1); }, "split: the sizes add up to 2, but dimension 1 has size 4"},
{[](World& w) { split(w.matrix, {3, 2}, 1); }, "split: sizes [3, 2] do not add up to 4, the size of dimension 1"},
{[](World& w) { split(w.matrix, 0); }, "split: the size must be positive, got 0"},
{[](World& w) { chunk(w.matrix, 0); }, "chunk: the number of chunks must be positive, got 0"},
{[](World& w) { repeat(w.vector, {-2}); }, "repeat: negative count in [-2]"},
{[](World& w) { tril(w.vector); }, "tril: expected a matrix or a batch of them, got shape [3]"},
{[](World& w) { diag(w.cube); }, "diag: expected a vector or a matrix, got shape [2, 3, 4]"},
{[](World& w) { mse_loss(w.matrix, w.vector); }, "mse_loss: input of shape [3, 4] and target of shape [3]"},
{[](World& w) { binary_cross_entropy(w.vector, w.number); },
 "binary_cross_entropy: input of shape [3] and target of shape []"},
{[](World& w) { binary_cross_entropy_with_logits(w.vector, w.number); },
 "binary_cross_entropy_with_logits: input of shape [3] and target of shape []"},
{[](World& w) { cross_entropy(w.matrix, tensor({1, 2})); }, "cross_entropy: scores of shape [3, 4] but a target of shape [2]"},
{[](World& w) { cross_entropy(w.cube, w.ids); }, "cross_entropy: scores of shape [2, 3, 4] but a target of shape [3]; the classes are dimension 1 of the scores"},
{[](World& w) { nll_loss(w.number, w.ids); }, "nll_loss: scores of shape [], not [n, classes]"},
{[](World& w) { gather(w.matrix, 0, w.ids); }, "gather: an index of shape [3] for a tensor of shape [3, 4]"},
{[](World& w) { scatter(w.matrix, 0, zeros({1, 9}, {.dtype = kInt64}), ones({1, 9})); },
 "scatter: the index's shape [1, 9] exceeds [3, 4] in dimension 1"},
{[](World& w) { scatter_add(w.vector, 0, w.ids, ones({2})); },
 "scatter_add: the source's shape [2] is smaller than the index's, [3]"},
{[](World& w) { index_select(w.matrix, 0, ones({2, 2}, {.dtype = kInt64})); },
 "index_select: indices must be 1-d, got shape [2, 2]"},
{[](World& w) { masked_select(w.matrix, w.mask); }, "masked_select: shapes [3, 4] and [3] do not broadcast"},
{[](World& w) { embedding(w.number, w.ids); }, "embedding: the weight needs a dimension of rows, got a 0-d tensor"},
{[](World& w) { lstm_cell(w.matrix, w.vector); },
 "lstm_cell: a memory cell of shape [3] with gates of shape [3, 4]; it should be [3, 1]"},
{[](World& w) { lstm_cell(ones({3, 8}), w.matrix); },
 "lstm_cell: a memory cell of shape [3, 4] with gates of shape [3, 8]; it should be [3, 2]"},
{[](World& w) { tree_lstm_cell(w.matrix, {w.vector}); },
 "tree_lstm_cell: a memory cell of shape [3] with gates of shape [3, 4]; it should be [3, 1]"},
{[](World&) { tree_lstm_cell(ones({2, 16}), {ones({2, 4}), ones({2, 4})}); },
 "tree_lstm_cell: gates of shape [2, 16] are not [n, 5 H]"},
{[](World& w) { w.matrix.view({5, -1}); }, "view: shape [3, 4] has 12 elements, which do not fit [5, -1]"},
{[](World& w) { w.matrix.reshape({5, 2}); }, "reshape: shape [3, 4] has 12 elements, which do not fit [5, 2]"},
{[](World& w) { w.matrix.reshape({-1, -1}); }, "reshape: more than one -1 in [-1, -1]"},
{[](World& w) { w.matrix.t().view({12}); },
 "view: shape [4, 3] with strides [1, 4] cannot be seen as [12] without a copy; use reshape"},
{[](World& w) { w.matrix.expand({2, 4}); }, "expand: shape [3, 4] does not expand to [2, 4]"},
{[](World& w) { w.matrix.expand({4}); }, "expand: shape [3, 4] has more dimensions than [4]"},
{[](World& w) { w.matrix.permute({0}); }, "permute: [0] for a tensor of 2 dimensions"},
{[](World& w) { w.matrix.permute({1, 1}); }, "permute: dimension 1 twice in [1, 1]"},
{[](World& w) { w.cube.t(); }, "t: a tensor of shape [2, 3, 4]; transpose names two dimensions"},
{[](World& w) { w.cube.flatten(2, 1); }, "flatten: start_dim 2 comes after end_dim 1"},
{[](World& w) { w.vector.add_(w.matrix); }, "add_: shapes [3] and [3, 4] do not broadcast"},
{[](World& w) { w.vector.copy_(ones({4})); }, "copy_: shapes [3] and [4] do not broadcast"},
{[](World& w) { w.matrix.index_put_({0}, ones({3})); }, "index_put_: shapes [4] and [3] do not broadcast"},
// ---- dimensions
{[](World& w) { sum(w.matrix, 2); }, "sum: dimension 2 is out of range for a tensor of 2 dimensions"},
{[](World& w) { sum(w.matrix, {0, -2}); }, "sum: dimension -2 is named twice in [0, -2]"},
{[](World& w) { mean(w.number, 1); }, "mean: dimension 1 is out of range for a tensor of 0 dimensions"},
{[](World& w) { softmax(w.matrix, -3); }, "softmax: dimension -3 is out of range for a tensor of 2 dimensions"},
{[](World& w) { cumsum(w.matrix, 5); }, "cumsum: dimension 5 is out of range for a tensor of 2 dimensions"},
{[](World& w) { max(w.matrix, 2); }, "max: dimension 2 is out of range for a tensor of 2 dimensions"},
{[](World& w) { argmax(w.matrix, -3); }, "argmax: dimension -3 is out of range for a tensor of 2 dimensions"},
{[](World& w) { sort(w.matrix, 2); }, "sort: dimension 2 is out of range for a tensor of 2 dimensions"},
{[](World& w) { cat({w.matrix, w.matrix}, 2); }, "cat: dimension 2 is out of range for a tensor of 2 dimensions"},
{[](World& w) { stack({w.matrix, w.matrix}, 3); }, "stack: dimension 3 is out of range for a tensor of 3 dimensions"},
{[](World& w) { flip(w.matrix, {0, 0}); }, "flip: dimension 0 is named twice in [0, 0]"},
{[](World& w) { roll(w.matrix, 1, 2); }, "roll: dimension 2 is out of range for a tensor of 2 dimensions"},
{[](World& w) { index_select(w.matrix, 2, w.ids); },
 "index_select: dimension 2 is out of range for a tensor of 2 dimensions"},
{[](World& w) { w.matrix.transpose(0, 2); }, "transpose: dimension 2 is out of range for a tensor of 2 dimensions"},
{[](World& w) { w.matrix.squeeze(2); }, "squeeze: dimension 2 is out of range for a tensor of 2 dimensions"},
{[](World& w) { w.matrix.unsqueeze(3); }, "unsqueeze: dimension 3 is out of range for a tensor of 3 dimensions"},
{[](World& w) { w.matrix.size(2); }, "size: dimension 2 is out of range for a tensor of 2 dimensions"},
{[](World& w) { w.number.size(0); }, "size: a 0-d tensor has no dimension 0"},
{[](World& w) { w.matrix.slice(0, 0, 2, 0); }, "slice: step 0 is not positive"},
{[](World& w) { w.matrix.narrow(1, 3, 2); }, "narrow: start 3 + length 2 exceeds size 4 of dimension 1"},
{[](World& w) { w.number.select(0, 0); }, "select: a 0-d tensor has no element 0"},
{[](World& w) { w.matrix.index({0, 0, 0}); }, "index: 3 indices for a tensor of 2 dimensions"},
{[](World& w) { w.matrix.index({kEllipsis, kEllipsis}); }, "index: more than one ellipsis"},
{[](World& w) { w.matrix.index({ones({2}, {.dtype = kBool})}); },
 "index: a mask of shape [2] for dimensions 0 and on of shape [3, 4]"},
{[](World& w) { topk(w.matrix, 5); }, "topk: k = 5 of dimension 1 of size 4"},
// ---- undefined tensors
{[](World& w) { w.undefined.shape(); }, "shape: undefined tensor"},
{[](World& w) { w.undefined + w.matrix; }, "add: undefined tensor"},
{[](World& w) { w.matrix * w.undefined; }, "mul: undefined tensor"},
{[](World& w) { exp(w.undefined); }, "exp: undefined tensor"},
{[](World& w) { sum(w.undefined); }, "sum: undefined tensor"},
{[](World& w) { matmul(w.matrix, w.undefined); }, "matmul: undefined tensor"},
{[](World& w) { linear(w.undefined, w.matrix); }, "linear: undefined tensor"},
{[](World& w) { cat({w.matrix, w.undefined}); }, "cat: undefined tensor"},
{[](World& w) { cross_entropy(w.matrix, w.undefined); }, "cross_entropy: undefined tensor"},
{[](World& w) { w.undefined.view({1}); }, "view: undefined tensor"},
{[](World& w) { w.undefined.item(); }, "item: undefined tensor"},
{[](World& w) { w.undefined.backward(); }, "backward: undefined tensor"},
{[](World& w) { w.undefined.add_(1); }, "add_: undefined tensor"},
{[](World& w) { w.matrix.add_(w.undefined); }, "add_: undefined tensor"},
{[](World& w) { w.undefined.to(kFloat64); }, "to: undefined tensor"},
{[](World& w) { w.undefined.requires_grad_(); }, "requires_grad_: undefined tensor"},
{[](World& w) { w.undefined.clone(); }, "clone: undefined tensor"},
{[](World& w) { w.undefined.t(); }, "t: undefined tensor"},
{[](World& w) { w.matrix.index({w.undefined}); }, "index: undefined tensor"},
// ---- dtypes
{[](World& w) { sub(w.mask, w.mask); }, "sub: bool tensors; logical_xor or logical_not is meant"},
{[](World& w) { neg(w.mask); }, "neg: a bool tensor; logical_not inverts it"},
{[](World& w) { mean(w.whole); }, "mean: int64 tensors have no mean; convert to a floating point type first"},
{[](World& w) { softmax(w.whole, 0); }, "softmax: a tensor of int64; convert it to a floating point type first"},
{[](World& w) { dropout(w.whole); }, "dropout: a tensor of int64; only floating point ones can be scaled"},
{[](World& w) { where(w.whole, w.vector, w.vector); }, "where: the condition is int64, not bool"},
{[](World& w) { masked_fill(w.vector, w.whole, 0); }, "masked_fill: the mask must be bool, got int64"},
{[](World& w) { masked_select(w.vector, w.vector); }, "masked_select: the mask must be bool, got float32"},
{[](World& w) { index_select(w.matrix, 0, w.vector); }, "index_select: indices must be int64 (or int32 or uint8), got float32; to(kInt64) converts"},
{[](World& w) { gather(w.vector, 0, w.vector); }, "gather: indices must be int64 (or int32 or uint8), got float32; to(kInt64) converts"},
{[](World& w) { embedding(w.matrix, w.mask); }, "embedding: indices must be int64 (or int32 or uint8), got bool; to(kInt64) converts"},
{[](World& w) { one_hot(w.vector); }, "one_hot: indices must be int64 (or int32 or uint8), got float32; to(kInt64) converts"},
{[](World& w) { w.matrix.index({w.vector}); }, "index: a tensor of float32 is no index; int64, int32 and bool ones are"},
{[](World& w) { cross_entropy(w.matrix, w.vector); },
 "cross_entropy: logits of shape [3, 4] and a float32 target of shape [3]; classes are int64, probabilities have the "
 "logits' shape"},
{[](World& w) { nll_loss(w.matrix, w.mask); }, "nll_loss: the target is bool, not int64"},
{[](World& w) { w.whole.add_(1.5); }, "add_: the result is float32, which does not fit into a tensor of int64"},
{[](World& w) { w.whole.exp_(); }, "exp_: the result is float32, which does not fit into a tensor of int64"},
{[](World& w) { w.whole.data<float>(); }, "data: asked for float32 elements of a tensor of int64"},
{[](World& w) { w.whole.normal_(); }, "normal_: a tensor of int64; only floating point ones can be filled"},
{[](World&) { randn({2}, {.dtype = kInt64}); },
 "randn: a tensor of int64; only floating point ones can be filled with fractions"},
// ---- values
{[](World& w) { w.matrix.select(0, 3); }, "select: index 3 is out of range for dimension 0 of size 3"},
{[](World& w) { w.matrix[-4]; }, "select: index -4 is out of range for dimension 0 of size 3"},
{[](World& w) { index_select(w.matrix, 0, tensor({0, 3})); },
 "index_select: index 3 is out of range for dimension 0 of size 3"},
{[](World& w) { w.matrix.index({w.ids, tensor({0, 1, 4})}); },
 "index: index 4 is out of range for dimension 1 of size 4"},
{[](World& w) { gather(w.vector, 0, tensor({3})); }, "gather: index 3 is out of range for dimension 0 of size 3"},
{[](World& w) { scatter(w.vector, 0, tensor({-4}), ones({1})); },
 "scatter: index -4 is out of range for dimension 0 of size 3"},
{[](World& w) { embedding(w.matrix, tensor({{0, 3}})); }, "embedding: index 3 is out of range for dimension 0 of size 3"},
{[](World& w) { cross_entropy(w.matrix, tensor({0, 4, 1})); }, "cross_entropy: target 4 is out of range for 4 classes"},
{[](World& w) { nll_loss(w.matrix, tensor({0, -1, 1})); }, "nll_loss: target -1 is out of range for 4 classes"},
{[](World& w) { one_hot(w.ids, 2); }, "one_hot: index 2 is out of range for 2 classes"},
{[](World& w) { one_hot(w.whole); }, "one_hot: index -2 is out of range for 4 classes"},
{[](World& w) { fmod(w.whole, w.ids); }, "fmod: integer division by zero"},
{[](World& w) { pow(w.ids, -1); }, "pow: integers to the power of -1; make one of them floating"},
{[](World& w) { binary_cross_entropy(w.vector, w.vector); },
 "binary_cross_entropy: the input is not a probability, some element is outside [0, 1]"},
{[](World& w) { clamp(w.vector, {}); }, "clamp: neither a minimum nor a maximum"},
{[](World& w) { softplus(w.vector, 0); }, "softplus: beta 0 is not positive"},
{[](World& w) { dropout(w.vector, 1.5); }, "dropout: the probability must be in [0, 1], got 1.5"},
{[](World& w) { norm(w.vector, NAN); }, "norm: p is nan"},
{[](World& w) { max(w.none); }, "max: nothing to take it of, shape [0, 4]"},
{[](World& w) { argmin(w.none, 0); }, "argmin: nothing to take it of, shape [0, 4]"},
{[](World& w) { w.matrix.item(); }, "item: the tensor has 12 elements, shape [3, 4]"},
{[](World& w) { w.none.item<int>(); }, "item: the tensor has 0 elements, shape [0, 4]"},
{[](World&) { randint(3, 3, {2}); }, "randint: no integer in [3, 3)"},
{[](World&) { arange(0, 5, 0); }, "arange: step 0"},
{[](World&) { linspace(0, 1, -1); }, "linspace: -1 steps"},
{[](World&) { tensor({{1, 2}, {3}}); }, "tensor: rows of different lengths, 2 and 1"},
{[](World&) { tensor(std::vector<float>{1, 2, 3}, {2, 2}); }, "tensor: shape [2, 2] needs 4 values, got 3"},
{[](World&) { from_blob(static_cast<float*>(nullptr), {2}); }, "from_blob: null pointer for shape [2]"},
// ---- sizes
{[](World&) { zeros({2, -1}); }, "shape [2, -1]: sizes cannot be negative"},
{[](World&) { empty({int64_t{1} << 40, int64_t{1} << 40}); },
 "shape [1099511627776, 1099511627776]: too many elements for 63 bits"},
{[](World&) { empty({int64_t{1} << 61}); }, "shape [2305843009213693952]: too many bytes for 63 bits"},
{[](World&) { empty({int64_t{1} << 48}); },
 "out of memory: 1125899906842688 bytes (1.0 PiB) could not be allocated; …"},
{[](World& w) { outer(zeros({1}).expand({int64_t{1} << 40}), zeros({1}).expand({int64_t{1} << 40})); (void)w; },
 "shape [1099511627776, 1099511627776]: too many elements for 63 bits"},
{[](World& w) { w.number.expand({int64_t{1} << 40, int64_t{1} << 40}); },
 "shape [1099511627776, 1099511627776]: too many elements for 63 bits"},
{[](World& w) { repeat(w.vector, {int64_t{1} << 62}); }, "repeat: too many elements"},
{[](World&) { one_hot(tensor({int64_t{1} << 50})); },
 "out of memory: 9007199254741064 bytes (8.0 PiB) could not be allocated; …"},
{[](World&) { eye(int64_t{1} << 32); }, "shape [4294967296, 4294967296]: too many elements for 63 bits"},
{[](World&) { zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}); }, "shape: 9 dimensions, at most 8 are supported"},
{[](World&) { zeros({1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0); },
 "shape [1, 1, 1, 1, 1, 1, 1, 1]: at most 8 dimensions are supported"},
{[](World&) { outer(zeros({3}), zeros({3})).view({1, 1, 1, 1, 1, 1, 1, 1, 9}); },
 "shape: 9 dimensions, at most 8 are supported"},
{[](World&) { randperm(-1); }, "randperm: -1 elements"},
// ---- gradients
{[](World& w) { w.matrix.backward(); },
 "backward: the tensor, float32 [3, 4], neither requires grad nor depends on a tensor that does"},
{[](World& w) { w.made.backward(); },
 "backward: a gradient must be given for a tensor of more than one element, shape [2, 3]"},
{[](World& w) { w.made.backward(ones({3, 2})); }, "backward: a gradient of shape [3, 2] for a tensor of shape [2, 3]"},
{[](World& w) { const Tensor y = sum(w.leaf * w.leaf); grad({y}, {w.leaf}); y.backward(); },
 "backward: the graph of 'sum' has been freed by an earlier backward; give that one retain_graph = true, or "
 "detach() what is carried over from the step before"},
{[](World& w) { const Tensor y = w.leaf * 3; const Tensor z = sum(y * y); y.detach().add_(1); z.backward(); },
 "mul: a tensor that its gradient needs was changed in place after it was used: float32 [2, 3] had version "
 "0 then and has version 1 now; change a clone() instead"},
{[](World& w) { const Tensor y = exp(w.leaf), z = sum(y); no_grad([&] { Tensor(y).mul_(2); }); z.backward(); },
 "exp: a tensor that its gradient needs was changed in place after it was used: float32 [2, 3] had version "
 "0 then and has version 1 now; change a clone() instead"},
{[](World& w) { w.leaf.add_(1); }, "add_: a leaf that requires grad can be changed in place only under no_grad"},
{[](World& w) { w.leaf[0].zero_(); },
 "fill_: a leaf that requires grad (through a view of it) can be changed in place only under no_grad"},
{[](World& w) { w.leaf.index_put_({0}, 1); },
 "index_put_: a leaf that requires grad can be changed in place only under no_grad"},
{[](World& w) { Tensor wide = w.vector.expand({2, 3}); wide.add_(1); },
 "add_: the tensor is expanded, several of its elements are one; clone() it first"},
{[](World& w) { Tensor view = no_grad([&] { return w.made.t(); }); view.mul_(2); },
 "mul_: the view was made under no_grad or became a leaf, its base would not learn of the change"},
{[](World& w) { w.made.requires_grad_(false); }, "requires_grad_: only leaves can be changed; detach() gives one"},
{[](World& w) { w.whole.requires_grad_(); },
 "requires_grad_: a tensor of int64 has no gradient, only floating point ones do"},
{[](World&) { zeros({2}, {.dtype = kInt32, .requires_grad = true}); },
 "requires_grad_: a tensor of int32 has no gradient, only floating point ones do"},
{[](World& w) { w.leaf.set_grad(ones({2})); },
 "set_grad: a float32 gradient of shape [2] for a tensor of float32 of shape [2, 3]"},
{[](World& w) { w.leaf.set_grad(w.leaf); }, "set_grad: the tensor itself as its gradient; set a clone() of it"},
{[](World& w) { w.vector.retain_grad(); }, "retain_grad: the tensor does not require grad"},
{[](World& w) { w.vector.register_hook([](const Tensor& g) { return g; }); },
 "register_hook: the tensor does not require grad"},
{[](World& w) { w.made.register_post_accumulate_grad_hook([](const Tensor&) {}); },
 "register_post_accumulate_grad_hook: not a leaf that requires grad"},
{[](World& w) { w.leaf.remove_hook(123456789); }, "remove_hook: the tensor has no hook 123456789"},
{[](World& w) { grad({sum(w.made)}, {w.vector}); }, "grad: input 0 does not require grad"},
{[](World& w) {
   const Tensor other = ones({2}, {.requires_grad = true});
   grad({sum(w.made)}, {other}, {}, {.retain_graph = true});
 },
 "grad: no output depends on input 0, shape [2]; allow_unused = true gives an undefined gradient for it"},
{[](World& w) { grad({sum(w.made)}, {}); }, "grad: no inputs"},
{[](World& w) { grad({w.made}, {w.leaf}, {ones({2, 3}), ones({2, 3})}); }, "grad: 1 outputs but 2 gradients"},
{[](World& w) { custom_op("mine", w.number * 1, {w.leaf}, [](auto&) { return Tensors{ones({7})}; }).backward(); },
 "mine: its rule returned a gradient of shape [7] for input 0 of shape [2, 3]"},
{[](World& w) { custom_op("mine", w.number.clone(), {w.leaf}, [](const Tensor&) { return Tensors{}; }).backward(); },
 "mine: its rule returned 0 gradients for 1 inputs"},
};
// clang-format on

}  // namespace

TEST_CASE("a wrong call says what is wrong and changes nothing", "[errors]") { check_wrong_calls(kWrongCalls); }

TEST_CASE("a GPU that is not there is one clear error", "[errors][cpu]") {
  if (cuda::is_available()) return;
  const auto clear = Catch::Predicate<std::string>([](const std::string& message) {
    return message == "this build of reel has no CUDA backend" ||
           message == "cuda: this machine has no GPU that CUDA can use";
  });
  CHECK_THROWS_WITH(zeros({2}, {.device = kCUDA}), clear);
  CHECK_THROWS_WITH(zeros({2}).to(kCUDA), clear);
  CHECK_THROWS_WITH(set_default_device(kCUDA), clear);
  CHECK_THROWS_WITH(cuda::synchronize(), clear);
  CHECK(default_device() == kCPU);
}

TEST_CASE("devices are read as they are written", "[errors]") {
  for (const Device device : {kCPU, kCUDA, Device{DeviceType::kCUDA, 12}}) {
    std::ostringstream text;
    text << device;
    CHECK(Device::from_string(text.str()) == device);
  }
  CHECK(Device::from_string("cuda") == kCUDA);
  for (const char* wrong : {"", "gpu", "cpu:0", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:300", "cuda1"})
    CHECK_THROWS_WITH(Device::from_string(wrong),
                      "device: expected cpu, cuda or cuda:N, got '" + std::string(wrong) + "'");
}

TEST_CASE("running out of memory names the largest holders", "[errors]") {
  const Tensor large = zeros({300, 1000});
  CHECK_THROWS_WITH(empty({int64_t{1} << 50}), Catch::Contains(" bytes (4.0 PiB) could not be allocated; ") &&
                                                   Catch::Contains("the largest holders: ") &&
                                                   Catch::Contains("1.1 MiB (float32 [300, 1000])"));
}

TEST_CASE("an unknown REEL_CPU names the known ones", "[errors]") {
  char self[PATH_MAX] = {};
  REQUIRE(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  const std::string command = "REEL_CPU=abacus '" + std::string(self) + "' 'zeros keep their sign' 2>&1";
  FILE* child = popen(command.c_str(), "r");
  REQUIRE(child);
  std::string output;
  for (char buffer[512]; fgets(buffer, sizeof buffer, child);) output += buffer;
  CHECK(pclose(child) != 0);
  CHECK_THAT(output, Catch::Contains("REEL_CPU=abacus"));
}

}  // namespace reel
