// The ops that programs may name: the C++ half of the table whose Python half is ops.py. A name in parentheses tells
// overloads apart.
#include "test/differential/arguments.h"

namespace reel {
namespace {

using Ids = const std::vector<int64_t>&;
using MaybeInt = std::optional<int64_t>;
using MaybeDouble = std::optional<double>;

// The gradients of the sum of all outputs, each weighted by its cotangent.
Tensors gradients(const Tensors& outputs, const Tensors& inputs, const Tensors& cotangents, bool create_graph) {
  return grad(outputs, inputs, cotangents, {.retain_graph = true, .create_graph = create_graph, .allow_unused = true});
}

// What backward() leaves in the grad() of these leaves.
Tensors backward_of(In output, In cotangent, const Tensors& leaves) {
  for (Tensor leaf : leaves) leaf.set_grad({});
  output.backward(cotangent, {.retain_graph = true});
  Tensors all;
  for (const Tensor& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

const std::vector<Op> pointwise{
    OP(mul), OP(div), OP(pow), OP(maximum), OP(minimum), OP(fmod), OP(remainder), OP(floor_divide), OP(float_power),
    OP(hypot), OP(atan2), OP(logaddexp), OP(xlogy), OP(lerp), OP(addcmul), OP(addcdiv),
    CALL("clamp", (In x, const Bound& low, const Bound& high), clamp(x, low, high)), OP(nan_to_num), OP(where), OP(neg),
    OP(abs), OP(sign), OP(exp), OP(expm1), OP(log), OP(log1p), OP(sqrt), OP(rsqrt), OP(square), OP(reciprocal), OP(sin),
    OP(cos), OP(tan), OP(asin), OP(acos), OP(atan), OP(sinh), OP(cosh), OP(tanh), OP(asinh), OP(acosh), OP(atanh),
    OP(exp2), OP(log2), OP(log10), OP(logit), OP(sigmoid), OP(erf), OP(erfc), OP(lgamma), OP(digamma), OP(polygamma),
    OP(floor), OP(ceil), OP(round), OP(trunc), OP(frac), OP(eq), OP(ne), OP(lt), OP(le), OP(gt), OP(ge),
    OP(logical_and), OP(logical_or), OP(logical_xor), OP(logical_not), OP(isnan), OP(isinf), OP(isfinite), OP(isclose),
    OP(allclose), OP(equal), OP(bitwise_and), OP(bitwise_or), OP(bitwise_xor), OP(bitwise_not), OP(bitwise_left_shift),
    OP(bitwise_right_shift),
    // activations
    OP(relu), OP(relu6), OP(hardtanh), OP(leaky_relu), OP(prelu), OP(rrelu), OP(elu), OP(selu), OP(celu), OP(gelu),
    OP(gelu_tanh), OP(silu), OP(mish), OP(hardswish), OP(hardsigmoid), OP(logsigmoid), OP(softplus), OP(softsign),
    OP(tanhshrink), OP(hardshrink), OP(softshrink), OP(threshold), OP(glu),
    CALL("softmax", (In x, int64_t dim), softmax(x, dim)), OP(log_softmax), OP(softmin)};

const std::vector<Op> reductions{
    CALL("sum", (In x, const Dims& dims, bool keepdim), sum(x, dims, keepdim)),
    CALL("mean", (In x, const Dims& dims, bool keepdim), mean(x, dims, keepdim)),
    OP(nansum),
    OP(nanmean),
    OP(count_nonzero),
    CALL("prod", (In x), prod(x)),
    CALL("prod(dim)", (In x, int64_t dim, bool keepdim), prod(x, dim, keepdim)),
    CALL("max", (In x), max(x)),
    CALL("max(dim)", (In x, int64_t dim, bool keepdim), max(x, dim, keepdim)),
    CALL("min", (In x), min(x)),
    CALL("min(dim)", (In x, int64_t dim, bool keepdim), min(x, dim, keepdim)),
    OP(amax),
    OP(amin),
    OP(aminmax),
    OP(argmax),
    OP(argmin),
    CALL("var", (In x, const Dims& dims, double correction, bool keepdim), var(x, dims, correction, keepdim)),
    CALL("std", (In x, const Dims& dims, double correction, bool keepdim), reel::std(x, dims, correction, keepdim)),
    CALL("var_mean", (In x, const Dims& dims, double correction, bool keepdim), var_mean(x, dims, correction, keepdim)),
    CALL("std_mean", (In x, const Dims& dims, double correction, bool keepdim), std_mean(x, dims, correction, keepdim)),
    OP(cov),
    OP(corrcoef),
    OP(norm),
    OP(renorm),
    OP(logsumexp),
    OP(any),
    OP(all),
    OP(trace),
    OP(cross),
    OP(cumsum),
    OP(cumprod),
    OP(cummax),
    OP(cummin),
    OP(logcumsumexp),
    OP(diff)};

const std::vector<Op> shapes{
    CALL("cat", (const Tensors& list, int64_t dim), cat(list, dim)),
    CALL("stack", (const Tensors& list, int64_t dim), stack(list, dim)),
    OP(hstack),
    OP(vstack),
    OP(dstack),
    OP(column_stack),
    OP(block_diag),
    CALL("split", (In x, int64_t size, int64_t dim), split(x, size, dim)),
    CALL("split(sizes)", (In x, Ids sizes, int64_t dim), split(x, sizes, dim)),
    OP(chunk),
    CALL("tensor_split", (In x, int64_t sections, int64_t dim), tensor_split(x, sections, dim)),
    CALL("tensor_split(starts)", (In x, Ids starts, int64_t dim), tensor_split(x, starts, dim)),
    OP(unbind),
    MEMBER(view),
    OP(reshape),
    OP(flatten),
    CALL("squeeze", (In x), squeeze(x)),
    CALL("squeeze(dim)", (In x, int64_t dim), squeeze(x, dim)),
    OP(unsqueeze),
    OP(transpose),
    OP(permute),
    OP(narrow),
    MEMBER(expand),
    MEMBER(select),
    MEMBER(slice),
    MEMBER(t),
    MEMBER(contiguous),
    MEMBER(clone),
    MEMBER(detach),
    CALL("to", (In x, DType type), x.to(type)),
    MEMBER(index),
    CALL("requires_grad_", (Tensor x, bool value), x.requires_grad_(value)),
    OP(unflatten),
    OP(ravel),
    OP(movedim),
    OP(broadcast_tensors),
    OP(atleast_1d),
    OP(atleast_2d),
    OP(atleast_3d),
    OP(diagonal),
    OP(flip),
    OP(fliplr),
    OP(flipud),
    OP(rot90),
    OP(roll),
    OP(repeat),
    OP(tile),
    CALL("repeat_interleave", (In x, int64_t n, MaybeInt dim), repeat_interleave(x, n, dim)),
    CALL("repeat_interleave(each)", (In x, In n, MaybeInt dim), repeat_interleave(x, n, dim)),
    OP(tril),
    OP(triu),
    OP(diag),
    OP(meshgrid),
    OP(cartesian_prod),
    OP(combinations),
    CALL("zeros_like", (In x), zeros_like(x)),
    CALL("ones_like", (In x), ones_like(x)),
    OP(tril_indices),
    OP(triu_indices),
    CALL("arange", (Scalar start, Scalar end, Scalar step), arange(start, end, step)),
    CALL("linspace", (double start, double end, int64_t steps), linspace(start, end, steps)),
    CALL("eye", (int64_t n, MaybeInt m), eye(n, m)),
    CALL("full", (const Shape& shape, Scalar value), full(shape, value))};

const std::vector<Op> indexing{
    OP(index_select),
    OP(index_add),
    OP(index_copy),
    OP(index_fill),
    OP(index_put),
    OP(gather),
    OP(scatter),
    OP(scatter_add),
    OP(scatter_reduce),
    OP(take_along_dim),
    OP(put_along_dim),
    OP(take),
    OP(masked_select),
    OP(masked_fill),
    OP(masked_scatter),
    OP(nonzero),
    OP(argwhere),
    OP(one_hot),
    OP(select_scatter),
    OP(slice_scatter),
    OP(diagonal_scatter),
    OP(sort),
    OP(argsort),
    CALL("topk", (In x, int64_t k, int64_t dim, bool largest), topk(x, k, dim, largest).values),
    CALL("kthvalue", (In x, int64_t k, int64_t dim, bool keepdim), kthvalue(x, k, dim, keepdim).values),
    CALL("median", (In x), median(x)),
    CALL("median(dim)", (In x, int64_t dim, bool keepdim), median(x, dim, keepdim).values),
    CALL("mode", (In x, int64_t dim, bool keepdim), mode(x, dim, keepdim).values),
    CALL("quantile", (In x, double q, MaybeInt dim, bool keepdim), quantile(x, q, dim, keepdim)),
    CALL("quantile(many)", (In x, In q, MaybeInt dim, bool keepdim), quantile(x, q, dim, keepdim)),
    CALL("unique", (In x), unique(x, {.inverse = true, .counts = true})),
    CALL("unique(dim)", (In x, int64_t dim), unique(x, {.dim = dim, .inverse = true, .counts = true})),
    CALL("unique_consecutive", (In x, MaybeInt dim),
         unique_consecutive(x, {.dim = dim, .inverse = true, .counts = true})),
    OP(bincount),
    OP(histc),
    OP(searchsorted),
    OP(bucketize),
    CALL("embedding", (In weight, In ids, MaybeInt padding, bool by_frequency),
         embedding(weight, ids, {.padding_idx = padding, .scale_grad_by_freq = by_frequency})),
    CALL("embedding_bag", (In weight, In ids, In offsets, Reduce mode, In weights, bool last, MaybeInt padding),
         embedding_bag(weight, ids,
                       {.offsets = offsets,
                        .mode = mode,
                        .per_sample_weights = weights,
                        .include_last_offset = last,
                        .padding_idx = padding}))};

const std::vector<Op> products{
    OP(matmul),
    OP(mm),
    OP(bmm),
    OP(dot),
    OP(outer),
    OP(addmm),
    OP(linear),
    OP(bilinear),
    OP(mv),
    OP(baddbmm),
    OP(inner),
    OP(kron),
    CALL("tensordot", (In a, In b, Ids dims_a, Ids dims_b), tensordot(a, b, dims_a, dims_b)),
    CALL("einsum", (const std::string& equation, const Tensors& operands), einsum(equation, operands)),
    {"linalg.inv", call(linalg::inv)},
    {"linalg.det", call(linalg::det)},
    {"linalg.slogdet", call(linalg::slogdet)},
    {"linalg.cholesky", call(linalg::cholesky)},
    {"linalg.qr", call(linalg::qr)},
    {"linalg.svdvals", call(linalg::svdvals)},
    {"linalg.eigvalsh", call(linalg::eigvalsh)},
    {"linalg.solve", call(linalg::solve)},
    CALL("linalg.solve_triangular", (In a, In b, bool upper, bool left, bool unitriangular),
         linalg::solve_triangular(a, b, {upper, left, unitriangular})),
    CALL("linalg.lstsq", (In a, In b), linalg::lstsq(a, b)),
    CALL("linalg.pinv", (In a), linalg::pinv(a)),
    CALL("linalg.matrix_rank", (In a), linalg::matrix_rank(a)),
    {"linalg.vector_norm", call(linalg::vector_norm)},
    CALL("linalg.matrix_norm", (In a, double ord, bool keepdim), linalg::matrix_norm(a, ord, keepdim)),
    CALL("linalg.matrix_norm(name)", (In a, linalg::MatrixNorm ord, bool keepdim),
         linalg::matrix_norm(a, ord, keepdim)),
    {"linalg.matrix_power", call(linalg::matrix_power)},
    OP(cosine_similarity),
    CALL("pairwise_distance", (In a, In b, double p, double eps, bool keepdim),
         pairwise_distance(a, b, {p, eps, keepdim})),
    OP(cdist),
    OP(pdist),
    CALL("scaled_dot_product_attention", (In query, In key, In value, In mask, bool causal),
         scaled_dot_product_attention(query, key, value, {.mask = mask, .is_causal = causal}))};

const std::vector<Op> losses{
    CALL("nll_loss", (In x, In y, In weight, int64_t ignored, Reduction r), nll_loss(x, y, {weight, ignored, r})),
    CALL("cross_entropy", (In x, In y, In weight, int64_t ignored, Reduction r, double smoothing),
         cross_entropy(x, y, {weight, ignored, r, smoothing})),
    CALL("multi_margin_loss", (In x, In y, int64_t p, double margin, In weight, Reduction r),
         multi_margin_loss(x, y, {p, margin, weight, r})),
    OP(multilabel_margin_loss),
    CALL("multilabel_soft_margin_loss", (In x, In y, In weight, Reduction r),
         multilabel_soft_margin_loss(x, y, {weight, r})),
    OP(l1_loss),
    OP(mse_loss),
    CALL("smooth_l1_loss", (In x, In y, double beta, Reduction r), smooth_l1_loss(x, y, {beta, r})),
    CALL("huber_loss", (In x, In y, double delta, Reduction r), huber_loss(x, y, {delta, r})),
    CALL("binary_cross_entropy", (In x, In y, In weight, Reduction r), binary_cross_entropy(x, y, {weight, r})),
    CALL("binary_cross_entropy_with_logits", (In x, In y, In weight, In positive, Reduction r),
         binary_cross_entropy_with_logits(x, y, {weight, positive, r})),
    CALL("kl_div", (In x, In y, bool log_target, Reduction r), kl_div(x, y, {log_target, r})),
    CALL("poisson_nll_loss", (In x, In y, bool log_input, bool all, double eps, Reduction r),
         poisson_nll_loss(x, y, {log_input, all, eps, r})),
    CALL("gaussian_nll_loss", (In x, In y, In variance, bool all, double eps, Reduction r),
         gaussian_nll_loss(x, y, variance, {all, eps, r})),
    OP(soft_margin_loss),
    CALL("hinge_embedding_loss", (In x, In y, double margin, Reduction r), hinge_embedding_loss(x, y, {margin, r})),
    CALL("margin_ranking_loss", (In a, In b, In y, double margin, Reduction r),
         margin_ranking_loss(a, b, y, {margin, r})),
    CALL("cosine_embedding_loss", (In a, In b, In y, double margin, Reduction r),
         cosine_embedding_loss(a, b, y, {margin, r})),
    CALL("triplet_margin_loss", (In a, In b, In c, double margin, double p, bool swap, Reduction r),
         triplet_margin_loss(a, b, c, {.margin = margin, .p = p, .swap = swap, .reduction = r}))};

#define POOLS(n)                                                                                                       \
  CALL("max_pool" #n "d", (In x, PerDim<n> size, PerDim<n> stride, PerDim<n> padding, PerDim<n> dilation, bool ceil),  \
       max_pool##n##d_with_indices(x, size, {stride, padding, dilation, ceil})),                                       \
      CALL("avg_pool" #n "d", (In x, PerDim<n> size, PerDim<n> stride, PerDim<n> padding, bool ceil, bool include),    \
           avg_pool##n##d(x, size, {stride, padding, ceil, include})),                                                 \
      CALL("lp_pool" #n "d", (In x, double p, PerDim<n> size, PerDim<n> stride, bool ceil),                            \
           lp_pool##n##d(x, p, size, {stride, ceil})),                                                                 \
      CALL("conv" #n "d", (In x, In w, In b, PerDim<n> stride, PerDim<n> padding, PerDim<n> dilation, int64_t groups), \
           conv##n##d(x, w, b, {stride, ConvPadding<n>(padding), dilation, groups})),                                  \
      CALL("conv_transpose" #n "d",                                                                                    \
           (In x, In w, In b, PerDim<n> stride, PerDim<n> padding, PerDim<n> extra, int64_t groups,                    \
            PerDim<n> dilation),                                                                                       \
           conv_transpose##n##d(x, w, b, {stride, padding, extra, groups, dilation})),                                 \
      CALL("adaptive_max_pool" #n "d", (In x, PerDim<n> size), adaptive_max_pool##n##d_with_indices(x, size)),         \
      CALL("adaptive_avg_pool" #n "d", (In x, PerDim<n> size), adaptive_avg_pool##n##d(x, size))

const std::vector<Op> layers{
    POOLS(1),
    POOLS(2),
    POOLS(3),
    CALL("batch_norm", (In x, In mean, In variance, In weight, In bias, bool training, double momentum, double eps),
         batch_norm(x, mean, variance, weight, bias, training, momentum, eps)),
    OP(instance_norm),
    OP(group_norm),
    OP(layer_norm),
    OP(rms_norm),
    OP(local_response_norm),
    OP(normalize),
    OP(pad),
    CALL("unfold", (In x, PerDim<2> size, PerDim<2> dilation, PerDim<2> padding, PerDim<2> stride),
         unfold(x, size, {dilation, padding, stride})),
    CALL("fold", (In x, PerDim<2> output, PerDim<2> size, PerDim<2> dilation, PerDim<2> padding, PerDim<2> stride),
         fold(x, output, size, {dilation, padding, stride})),
    CALL("interpolate", (In x, const Shape& size, Interpolation mode, bool align, bool antialias),
         interpolate(x, {.size = size, .mode = mode, .align_corners = align, .antialias = antialias})),
    CALL("interpolate(scale)", (In x, const std::vector<double>& scale, Interpolation mode, bool align),
         interpolate(x, {.scale_factor = scale, .mode = mode, .align_corners = align})),
    OP(pixel_shuffle),
    OP(pixel_unshuffle),
    OP(channel_shuffle),
    CALL("grid_sample", (In x, In grid, Interpolation mode, GridPadding padding, bool align),
         grid_sample(x, grid, {mode, padding, align})),
    OP(affine_grid),
    CALL("segment_reduce", (In x, In offsets, Reduce reduce), segment_reduce(x, offsets, reduce))};

const std::vector<Op> in_place{
    {"add_", call(+[](Tensor x, In b) { return Tensor(x.add_(b)); })},
    {"add_(alpha)", call(+[](Tensor x, In b, Scalar alpha) { return Tensor(x.add_(b, alpha)); })},
    {"sub_", call(+[](Tensor x, In b) { return Tensor(x.sub_(b)); })},
    {"sub_(alpha)", call(+[](Tensor x, In b, Scalar alpha) { return Tensor(x.sub_(b, alpha)); })},
    {"clamp_", call(+[](Tensor x, const Bound& low, const Bound& high) { return Tensor(x.clamp_(low, high)); })},
    MEMBER(mul_),
    MEMBER(div_),
    MEMBER(pow_),
    MEMBER(fmod_),
    MEMBER(remainder_),
    MEMBER(floor_divide_),
    MEMBER(lerp_),
    MEMBER(addcmul_),
    MEMBER(addcdiv_),
    MEMBER(neg_),
    MEMBER(abs_),
    MEMBER(sign_),
    MEMBER(exp_),
    MEMBER(expm1_),
    MEMBER(log_),
    MEMBER(log1p_),
    MEMBER(sqrt_),
    MEMBER(rsqrt_),
    MEMBER(square_),
    MEMBER(reciprocal_),
    MEMBER(sin_),
    MEMBER(cos_),
    MEMBER(tan_),
    MEMBER(asin_),
    MEMBER(acos_),
    MEMBER(atan_),
    MEMBER(exp2_),
    MEMBER(log2_),
    MEMBER(log10_),
    MEMBER(tanh_),
    MEMBER(sigmoid_),
    MEMBER(erf_),
    MEMBER(relu_),
    MEMBER(leaky_relu_),
    MEMBER(elu_),
    MEMBER(silu_),
    MEMBER(floor_),
    MEMBER(ceil_),
    MEMBER(round_),
    MEMBER(trunc_),
    MEMBER(frac_),
    MEMBER(nan_to_num_),
    MEMBER(masked_fill_),
    MEMBER(index_add_),
    MEMBER(index_copy_),
    MEMBER(index_fill_),
    MEMBER(index_put_),
    MEMBER(scatter_),
    MEMBER(scatter_add_),
    MEMBER(scatter_reduce_),
    MEMBER(masked_scatter_),
    CALL("copy_", (Tensor x, In source), x.copy_(source)),
    MEMBER(fill_),
    MEMBER(zero_)};

const std::vector<Op> others{CALL("add", (In a, In b), add(a, b)),
                             CALL("add(alpha)", (In a, In b, Scalar alpha), add(a, b, alpha)),
                             CALL("sub", (In a, In b), sub(a, b)),
                             CALL("sub(alpha)", (In a, In b, Scalar alpha), sub(a, b, alpha)),
                             {"grad", call(gradients)},
                             {"backward", call(backward_of)}};

}  // namespace

const std::vector<Op>& ops() {
  static const std::vector<Op> all = [] {
    std::vector<Op> joined;
    for (const auto* family :
         {&pointwise, &reductions, &shapes, &indexing, &products, &losses, &layers, &in_place, &others})
      joined.insert(joined.end(), family->begin(), family->end());
    return joined;
  }();
  return all;
}

}  // namespace reel
