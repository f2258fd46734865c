#pragma once
#include <string>
#include <vector>

#include "reel/ops/common.h"

#pragma GCC visibility push(default)
/// Losses over sequences: linear-chain conditional random fields (Lafferty et al. 2001) and CTC.
namespace reel {

// ---- linear-chain CRFs ----------------------------------------------------------------------------------------------
//
// A chain of tags y is scored start[y₀] + Σ emissions[t, y_t] + Σ transitions[y_t, y_t+1] + end[y_last]; its
// probability is the exponential of that, over the sum of those of all chains. emissions are [len, tags], or [len, n,
// tags] for n chains of `lengths` ([n], from 1 to len; undefined: all of len); transitions [tags, tags]; start and end
// [tags] or undefined, which is zero. Tags and lengths are int64, int32 or uint8. A potential of -infinity excludes the
// tag or transition. Computed in log space.

/// Bool masks of what is allowed: tag j after tag i [tags, tags], first, and last [tags]. Undefined: everything.
struct CrfConstraints {
  ///@{
  /// The mask of these potentials.
  Tensor transitions = {}, start = {}, end = {};
  ///@}
  std::vector<std::string> names = {};  ///< Of the tags, for messages; may be empty.
};

/// log p(tags | emissions), by one forward recursion: [] for tags [len], [n] for tags [len, n]. What lies beyond a
/// chain's end is not read. The gradients are observed minus expected counts.
///
/// A path of tags that `allowed` forbids is an Error that names the chain, the position and the tags (on a GPU the
/// position, and it is thrown later, as for indices out of range): training towards it contradicts decoding. The
/// probability is among all paths, also those that are not allowed.
Tensor crf_log_likelihood(const Tensor& emissions, const Tensor& tags, const Tensor& transitions,
                          const Tensor& start = {}, const Tensor& end = {}, const Tensor& lengths = {},
                          const CrfConstraints& allowed = {});
/// Returns the log-likelihoods [n] of a list of n chains, emissions [len_i, tags] with tags [len_i], without padding. A
/// chain of length 0 has 0.
Tensor crf_log_likelihood(TensorList emissions, TensorList tags, const Tensor& transitions, const Tensor& start = {},
                          const Tensor& end = {}, const CrfConstraints& allowed = {});

/// p(y_t = tag | emissions), of emissions' shape; 0 beyond a chain's end.
Tensor crf_marginals(const Tensor& emissions, const Tensor& transitions, const Tensor& start = {},
                     const Tensor& end = {}, const Tensor& lengths = {});

/// What crf_decode returns.
struct CrfPaths {
  Tensor tags;    ///< int64 [len] or [len, n], -1 beyond a chain's end
  Tensor scores;  ///< [] or [n]; -infinity where no chain is allowed
};
/// The chain of the highest score, by Viterbi's algorithm, among those that are allowed.
CrfPaths crf_decode(const Tensor& emissions, const Tensor& transitions, const Tensor& start = {},
                    const Tensor& end = {}, const Tensor& lengths = {}, const CrfConstraints& allowed = {});

/// The constraints of tags "O", "B-X", "I-X" (BIO) and also "E-X", "S-X" (BIOES; or "L-X", "U-X", BILOU) for any types
/// X: I-X and E-X must follow B-X or I-X of the same type, and are not first. If any E-X is among the names, what B-X
/// begins must be ended by an E-X. Other names are an Error.
CrfConstraints crf_bio_constraints(const std::vector<std::string>& tag_names);

// ---- CTC ------------------------------------------------------------------------------------------------------------

/// Of ctc_loss.
struct CTCLossOptions {
  int64_t blank = 0;            ///< The class that stands for no label.
  Reduction reduction = kMean;  ///< kMean divides each loss by its target's length (at least 1) before it averages.
  bool zero_infinity = false;   ///< 0, with a gradient of 0, where the input is too short for its target; otherwise the
                                ///< loss is infinite there and its gradient NaN.
};
/// Connectionist temporal classification (Graves et al. 2006): -log of the probability of all alignments of targets to
/// log_probs [steps, n, classes] (or [steps, classes] for one), which come from log_softmax. targets are int64 or
/// int32, [n, longest] padded or [total] one after another; input_lengths and target_lengths are [n] (or []). As in
/// PyTorch the gradient by log_probs is that by the input of the log_softmax, so it is wrong for log_probs from
/// elsewhere.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, const CTCLossOptions& options = {});

}  // namespace reel
#pragma GCC visibility pop
