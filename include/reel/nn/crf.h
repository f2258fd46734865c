#pragma once
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "reel/nn/module.h"
#include "reel/ops/crf.h"
#include "reel/ragged.h"

#pragma GCC visibility push(default)
/// A linear-chain conditional random field as a layer.
namespace reel::nn {

/// Options of CRF.
struct CRFOptions {
  bool batch_first = false;     ///< Emissions are [n, len, tags] instead of [len, n, tags], tags [n, len].
  Reduction reduction = kSum;   ///< Of the chains' log likelihoods.
  CrfConstraints allowed = {};  ///< What decode may return and targets may be; see crf_bio_constraints.
};

/// A linear-chain CRF over the tags of sequences, for the log potentials that another network emits. Names and initial
/// values (uniform in ±0.1) are those of the Python package pytorch-crf: start_transitions and end_transitions [tags],
/// transitions [tags, tags], of which [i, j] is from i to j.
///
///   (-crf(emissions, tags)).backward();
///   Tensor best = crf.decode(emissions).tags;
struct CRF : Layer<CRF> {
  explicit CRF(int64_t num_tags, CRFOptions options = {});
  CRF(Module& parent, std::string name, int64_t num_tags, CRFOptions options = {}) : CRF(num_tags, std::move(options)) {
    parent.register_module(std::move(name), *this);
  }
  /// The log likelihood of the tags: emissions [len, tags] or [len, n, tags] with lengths, as in crf_log_likelihood.
  /// Tags that options.allowed forbids are an Error.
  Tensor forward(const Tensor& emissions, const Tensor& tags, const Tensor& lengths = {}) const;
  /// The same for a list of chains [len_i, tags].
  Tensor forward(TensorList emissions, TensorList tags) const;
  /// Of each sequence of a Ragged, reduced.
  Tensor forward(const Ragged& emissions, const Ragged& tags) const;
  CrfPaths decode(const Tensor& emissions, const Tensor& lengths = {}) const;   ///< crf_decode with its parameters.
  Tensor marginals(const Tensor& emissions, const Tensor& lengths = {}) const;  ///< crf_marginals with them.
  ///@{
  /// The same of a Ragged.
  RaggedCrfPaths decode(const Ragged& emissions) const;
  Ragged marginals(const Ragged& emissions) const;
  ///@}
  void reset_parameters();
  std::string extra_repr() const override;

  const int64_t num_tags;
  const CRFOptions options;
  Parameter start_transitions, end_transitions, transitions;
};

}  // namespace reel::nn
#pragma GCC visibility pop
