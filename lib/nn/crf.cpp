#include "reel/nn/crf.h"

#include "reel/nn/init.h"
#include "reel/ops.h"

namespace reel::nn {

CRF::CRF(int64_t tags, CRFOptions given)
    : num_tags(tags),
      options(std::move(given)),
      start_transitions(*this, "start_transitions", empty({tags})),
      end_transitions(*this, "end_transitions", empty({tags})),
      transitions(*this, "transitions", empty({tags, tags})) {
  REEL_CHECK(options.reduction != kBatchMean, "CRF: kBatchMean is a reduction of kl_div");
  reset_parameters();
}

void CRF::reset_parameters() {
  for (const Tensor& parameter : parameters()) init::uniform_(parameter, -0.1, 0.1);
}

namespace {

/// Steps first.
Tensor by_steps(const Tensor& x, const CRFOptions& options, int64_t dims) {
  return options.batch_first && x.defined() && x.dim() == dims ? x.transpose(0, 1) : x;
}

Tensor reduced(const Tensor& likelihoods, Reduction reduction) {
  if (likelihoods.dim() == 0 || reduction == kNoReduction) return likelihoods;
  return reduction == kMean ? mean(likelihoods) : sum(likelihoods);
}

}  // namespace

Tensor CRF::forward(const Tensor& emissions, const Tensor& tags, const Tensor& lengths) const {
  return reduced(crf_log_likelihood(by_steps(emissions, options, 3), by_steps(tags, options, 2), transitions,
                                    start_transitions, end_transitions, lengths, options.allowed),
                 options.reduction);
}

Tensor CRF::forward(std::span<const Tensor> emissions, std::span<const Tensor> tags) const {
  return reduced(crf_log_likelihood(emissions, tags, transitions, start_transitions, end_transitions, options.allowed),
                 options.reduction);
}

Tensor CRF::forward(const Ragged& emissions, const Ragged& tags) const {
  return reduced(crf_log_likelihood(emissions, tags, transitions, start_transitions, end_transitions, options.allowed),
                 options.reduction);
}

CrfPaths CRF::decode(const Tensor& emissions, const Tensor& lengths) const {
  const CrfPaths paths = crf_decode(by_steps(emissions, options, 3), transitions, start_transitions, end_transitions,
                                    lengths, options.allowed);
  return {by_steps(paths.tags, options, 2), paths.scores};
}

Tensor CRF::marginals(const Tensor& emissions, const Tensor& lengths) const {
  return by_steps(
      crf_marginals(by_steps(emissions, options, 3), transitions, start_transitions, end_transitions, lengths), options,
      3);
}

RaggedCrfPaths CRF::decode(const Ragged& emissions) const {
  return crf_decode(emissions, transitions, start_transitions, end_transitions, options.allowed);
}
Ragged CRF::marginals(const Ragged& emissions) const {
  return crf_marginals(emissions, transitions, start_transitions, end_transitions);
}

std::string CRF::extra_repr() const { return "num_tags=" + std::to_string(num_tags); }

}  // namespace reel::nn
