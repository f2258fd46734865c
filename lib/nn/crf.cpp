#include "reel/nn/crf.h"

#include <limits>
#include <optional>
#include <vector>

#include "lib/autograd/saved_log.h"
#include "lib/base/op_modes.h"
#include "lib/nn/hooks.h"
#include "lib/nn/joined.h"
#include "lib/nn/repr.h"
#include "lib/ops/joined_call.h"
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

// ---- calls that are made together -----------------------------------------------------------------------------------

/// The log likelihood of chains or, without tags, their best paths: a call that may be one with others.
class JoinedChains final : public JoinedCall {
 public:
  /// The chains of a list, or the values of a Ragged.
  JoinedChains(const CRF& crf, std::span<const Tensor> emissions, std::span<const Tensor> tags, const Lengths* ragged)
      : JoinedCall(callee_of(crf, tags.empty()), typeid(JoinedChains)),
        crf_(crf),
        emissions_(emissions),
        tags_(tags),
        ragged_(ragged) {
    add(&emissions[0]);
    if (!tags.empty()) add(&tags[0]);
    rows = ragged ? ragged->size() : static_cast<int64_t>(emissions.size());
  }
  bool same_arguments(const Call&) const override { return true; }
  std::string label() const override { return internal::ModuleParts::label(crf_) + (tags_.empty() ? ".decode" : ""); }

  void run_all(RowGroup* group) override {
    JoinedParts joined;
    std::vector<Tensor> tags;
    for_each_call(*this, [&](JoinedChains& own) {
      joined.add(own.emissions_, own.ragged_);
      tags.insert(tags.end(), own.tags_.begin(), own.tags_.end());
    });
    const Ragged all = joined.all(group);
    const auto give = [&](Tensor JoinedChains::*member, const Tensor& whole, const std::vector<int64_t>& counts) {
      std::vector<Tensor> parts = detail::scatter_rows(whole, counts, group);
      size_t at = 0;
      for_each_call(*this, [&](JoinedChains& own) { own.*member = std::move(parts[at++]); });
    };
    if (tags_.empty()) {
      const RaggedCrfPaths best = crf_.decode(all);
      give(&JoinedChains::paths, best.tags.values, joined.rows);
      give(&JoinedChains::scores, best.scores, joined.sequences);
    } else {
      // A potential of -infinity excludes a tag, and does no harm where it is saved.
      std::vector<Tensor> saved;
      const SavedTensorLog log(saved);
      const Tensor whole = crf_log_likelihood(all, Ragged{detail::gather_rows(tags), all.lengths}, crf_.transitions,
                                              crf_.start_transitions, crf_.end_transitions, crf_.options.allowed);
      check_gradients(all.values, whole);
      give(&JoinedChains::scores, whole, joined.sequences);
    }
  }

  Tensor scores, paths;  // [chains], and of one part

 private:
  /// Calls of forward and of decode cannot be one.
  static const void* callee_of(const CRF& crf, bool decode) {
    return decode ? static_cast<const void*>(&crf.transitions) : &crf;
  }
  /// Throws where 0 times a gradient is not 0, so that each call is made by itself.
  static void check_gradients(const Tensor& emissions, const Tensor& scores) {
    if (!grad_enabled() || emissions.device() != kCPU) return;
    const Tensor finite = all(emissions.detach() < std::numeric_limits<double>::infinity()), y = scores.detach();
    if (!(finite & all(y == y)).item<bool>()) throw NotJoinable();
  }
  const CRF& crf_;
  const std::span<const Tensor> emissions_, tags_;
  const Lengths* const ragged_;
};

/// Returns whether they are chains, so that a call of all is one of each. What is not, or an Error, is left to the CRF.
bool are_chains(std::span<const Tensor> emissions, std::span<const Tensor> tags, bool may_be_empty) {
  if (emissions.empty() || emissions.size() != tags.size()) return false;
  for (size_t i = 0; i < emissions.size(); ++i) {
    const Tensor &e = emissions[i], &t = tags[i];
    if (!e.defined() || e.dim() != 2 || (!may_be_empty && e.size(0) == 0)) return false;
    if (!t.defined() || t.dim() != 1 || t.size(0) != e.size(0)) return false;
  }
  return true;
}

}  // namespace

Tensor CRF::forward(const Tensor& emissions, const Tensor& tags, const Tensor& lengths) const {
  std::optional<reel::detail::NoSuspendGuard> alone;
  if (!lengths.defined() && are_chains({&emissions, 1}, {&tags, 1}, false))
    if (JoinedChains call(*this, {&emissions, 1}, {&tags, 1}, nullptr); call.wait(alone)) return call.scores.squeeze(0);
  return reduced(crf_log_likelihood(by_steps(emissions, options, 3), by_steps(tags, options, 2), transitions,
                                    start_transitions, end_transitions, lengths, options.allowed),
                 options.reduction);
}

Tensor CRF::forward(TensorList emissions, TensorList tags) const {
  std::optional<reel::detail::NoSuspendGuard> alone;
  if (are_chains(emissions, tags, true))
    if (JoinedChains call(*this, emissions, tags, nullptr); call.wait(alone))
      return reduced(call.scores, options.reduction);
  return reduced(crf_log_likelihood(emissions, tags, transitions, start_transitions, end_transitions, options.allowed),
                 options.reduction);
}

Tensor CRF::forward(const Ragged& emissions, const Ragged& tags) const {
  const Lengths* const lengths = emissions.lengths.get();
  std::optional<reel::detail::NoSuspendGuard> alone;
  if (lengths && tags.lengths && *lengths == *tags.lengths &&
      are_chains({&emissions.values, 1}, {&tags.values, 1}, true) && lengths->total() == emissions.values.size(0))
    if (JoinedChains call(*this, {&emissions.values, 1}, {&tags.values, 1}, lengths); call.wait(alone))
      return reduced(call.scores, options.reduction);
  return reduced(crf_log_likelihood(emissions, tags, transitions, start_transitions, end_transitions, options.allowed),
                 options.reduction);
}

CrfPaths CRF::decode(const Tensor& emissions, const Tensor& lengths) const {
  std::optional<reel::detail::NoSuspendGuard> alone;
  if (!lengths.defined() && emissions.defined() && emissions.dim() == 2 && emissions.size(0) > 0)
    if (JoinedChains call(*this, {&emissions, 1}, {}, nullptr); call.wait(alone))
      return {call.paths, call.scores.squeeze(0)};
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

std::string CRF::extra_repr() const { return Repr().add("num_tags", num_tags).text(); }

}  // namespace reel::nn
