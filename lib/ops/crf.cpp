#include "reel/ops/crf.h"

#include <algorithm>
#include <limits>

#include "lib/device/kernels/crf.h"
#include "lib/ops/forward_backward.h"
#include "lib/ops/ragged.h"

namespace reel {
namespace {

constexpr double kForbidden = -std::numeric_limits<double>::infinity();

/// What every function on chains is given, checked and contiguous.
struct Chains {
  Tensor emissions;  // [rows…, tags]
  Tensor transitions, start, end;
  Tensor offsets, lengths;  // as Crf has them
  int64_t count = 1, steps = 0, tags = 0, stride = 1;
  std::shared_ptr<const Lengths> ragged = {};  // those of the offsets and lengths, if they are a Ragged's

  Crf describe() const {
    Crf crf;
    crf.dtype = emissions.dtype();
    crf.chains = count, crf.steps = steps, crf.tags = tags, crf.stride = stride;
    const auto at = [](const Tensor& t) { return t.defined() ? view_of(t).data : nullptr; };
    crf.offsets = static_cast<const int64_t*>(at(offsets));
    crf.lengths = static_cast<const int64_t*>(at(lengths));
    crf.emissions = at(emissions), crf.transitions = at(transitions), crf.start = at(start), crf.end = at(end);
    return crf;
  }
  Tensor like(const Tensor& x) const { return make_tensor(x.shape(), x.dtype(), x.device()); }
  Tensor make(const Shape& shape) const { return make_tensor(shape, emissions.dtype(), emissions.device()); }
  /// [] or [n]
  Shape result_shape() const { return offsets.defined() || emissions.dim() == 3 ? Shape{count} : Shape{}; }

  /// Chain s alone, recorded: [length, …] of rows that lie like the emissions.
  Tensor part(const Tensor& rows, int64_t s) const {
    if (ragged) {  // without a look at what is on a device
      const int64_t i = number_of(s);
      return rows.narrow(0, ragged->offsets()[i], (*ragged)[i]);
    }
    const int64_t begin = offsets.defined() ? offsets[s].item<int64_t>() : 0;
    const int64_t length = lengths.defined() ? lengths.flatten()[s].item<int64_t>() : steps;
    return (emissions.dim() == 3 ? rows.select(1, s) : rows).narrow(0, begin, length);
  }
  /// The number of chain s where empty ones, which are no chains here, count.
  int64_t number_of(int64_t s) const {
    if (!ragged) return s;
    int64_t i = 0;
    while ((*ragged)[i] == 0 || s-- > 0) ++i;
    return i;
  }
  /// The parts as rows again, with zeros beyond the chains' ends.
  Tensor join(std::vector<Tensor> parts) const {
    if (offsets.defined()) return cat(parts, 0);
    for (Tensor& part : parts)
      if (part.size(0) < steps)
        part = cat({part, zeros({steps - part.size(0), tags}, {.dtype = part.dtype(), .device = part.device()})}, 0);
    return emissions.dim() == 3 ? stack(parts, 1) : parts[0];
  }
};

void check_potentials(const char* op, const Chains& chains) {
  const DType dtype = chains.emissions.dtype();
  REEL_CHECK(is_floating_point(dtype), op, ": ", dtype, " emissions");
  const auto check = [&](const char* what, const Tensor& x, const Shape& shape) {
    REEL_CHECK(x.shape() == shape, op, ": ", what, " of shape ", x.shape(), " for ", chains.tags, " tags");
    REEL_CHECK(x.dtype() == dtype, op, ": ", dtype, " emissions but ", what, " of ", x.dtype());
  };
  REEL_CHECK(chains.tags > 0 && chains.steps > 0, op, ": emissions of shape ", chains.emissions.shape(),
             ", nothing to sum over");
  view_of(chains.transitions, op);
  check_device(op, chains.emissions, {&chains.transitions, &chains.start, &chains.end});
  check("transitions", chains.transitions, {chains.tags, chains.tags});
  if (chains.start.defined()) check("start", chains.start, {chains.tags});
  if (chains.end.defined()) check("end", chains.end, {chains.tags});
}

Tensor dense(const Tensor& x) { return x.defined() ? to_compute(x).contiguous() : x; }

Chains read_chains(const char* op, const Tensor& emissions, const Tensor& transitions, const Tensor& start,
                   const Tensor& end, const Tensor& lengths) {
  const Shape& shape = view_of(emissions, op).shape;
  REEL_CHECK(shape.size() == 2 || shape.size() == 3, op, ": emissions of shape ", shape,
             ", not [len, tags] or [len, n, tags]");
  Chains chains{
      .emissions = emissions, .transitions = transitions, .start = start, .end = end, .offsets = {}, .lengths = {}};
  chains.steps = shape[0], chains.tags = shape.back(), chains.stride = chains.count = shape.size() == 3 ? shape[1] : 1;
  check_potentials(op, chains);
  if (lengths.defined()) {
    REEL_CHECK(lengths.shape() == (shape.size() == 3 ? Shape{shape[1]} : Shape{}), op, ": lengths of shape ",
               lengths.shape(), " for emissions of shape ", shape);
    chains.lengths = to_ids(op, emissions, lengths).contiguous();
    int64_t bad;
    REEL_CHECK(!kernels_of(emissions).check_bounds(op, view_of(chains.lengths), 1, chains.steps + 1, &bad), op,
               ": length ", bad, " of emissions of shape ", shape);
  }
  chains.emissions = dense(emissions), chains.transitions = dense(transitions);
  chains.start = dense(start), chains.end = dense(end);
  return chains;
}

/// Tags that lie like the rows of emissions; in range where they are read.
Tensor read_tags(const char* op, const Tensor& tags, const Chains& chains) {
  Tensor read = to_ids(op, chains.emissions, tags).contiguous();
  Shape rows = chains.emissions.shape();
  rows.resize(rows.size() - 1);
  REEL_CHECK(read.shape() == rows, op, ": emissions of shape ", chains.emissions.shape(), " but tags of shape ",
             read.shape());
  if (chains.lengths.defined() && !chains.offsets.defined()) {
    Tensor t = arange(0, chains.steps, 1, {.dtype = kInt64, .device = tags.device()});
    if (rows.size() == 2) t = t.unsqueeze(1);
    read = where(t < chains.lengths, read, 0);
  }
  int64_t bad = 0;
  REEL_CHECK(!kernels_of(read).check_bounds(op, view_of(read), 0, chains.tags, &bad), op, ": tag ", bad,
             " is out of range for ", chains.tags, " tags");
  return read;
}

// ---- constraints ----------------------------------------------------------------------------------------------------

/// The mask, where the emissions are; undefined if it is undefined.
Tensor read_mask(const char* op, const Tensor& mask, const Shape& shape, const Chains& chains) {
  if (!mask.defined()) return mask;
  REEL_CHECK(mask.dtype() == kBool && mask.shape() == shape, op, ": ", mask.dtype(), " constraints of shape ",
             mask.shape(), ", not bool ", shape);
  return mask.to(chains.emissions.device()).contiguous();
}

/// What targets are allowed to be, and the steps where they are not.
struct Targets {
  Tensor transitions, start, end;
  Tensor forbidden;  // as Crf has it; undefined where everything is allowed

  Targets(const char* op, const Chains& chains, const CrfConstraints& allowed)
      : transitions(read_mask(op, allowed.transitions, {chains.tags, chains.tags}, chains)),
        start(read_mask(op, allowed.start, {chains.tags}, chains)),
        end(read_mask(op, allowed.end, {chains.tags}, chains)) {
    if (transitions.defined() || start.defined() || end.defined())
      forbidden = make_tensor({chains.count}, kInt64, chains.emissions.device());
  }

  void describe(Crf& crf) const {
    if (!forbidden.defined()) return;
    const auto at = [](const Tensor& mask) { return mask.defined() ? view_of(mask).as<const bool>() : nullptr; };
    crf.allowed_transitions = at(transitions), crf.allowed_start = at(start), crf.allowed_end = at(end);
    crf.forbidden = view_of(forbidden).as<int64_t>();
  }

  /// After the kernel has written `forbidden`.
  void check(const char* op, const Chains& chains, const Tensor& observed,
             const std::vector<std::string>& names) const {
    if (!forbidden.defined()) return;
    if (!is_readable(forbidden)) {
      int64_t bad;
      kernels_of(forbidden).check_bounds("crf_log_likelihood: a tag at a position where it is not allowed",
                                         view_of(forbidden), -1, 0, &bad);
      return;
    }
    const int64_t* const steps = forbidden.data<int64_t>();
    const int64_t* const bad = std::find_if(steps, steps + chains.count, [](int64_t t) { return t >= 0; });
    if (bad == steps + chains.count) return;
    const int64_t chain = bad - steps, t = *bad;
    const auto tag_at = [&](int64_t step) {
      const int64_t first = chains.offsets.defined() ? chains.offsets.data<int64_t>()[chain] : chain;
      return observed.data<int64_t>()[first + step * chains.stride];
    };
    const auto name_of_tag = [&](int64_t tag) {
      const bool named = static_cast<size_t>(tag) < names.size();
      return std::to_string(tag) + (named ? " (" + names[static_cast<size_t>(tag)] + ")" : "");
    };
    const auto allows = [](const Tensor& mask, int64_t i) { return !mask.defined() || mask.data<bool>()[i]; };
    const int64_t tag = tag_at(t);
    std::string why = "last";
    if (t == 0 && !allows(start, tag)) why = "first";
    if (t > 0 && !allows(transitions, tag_at(t - 1) * chains.tags + tag))
      why = "after tag " + name_of_tag(tag_at(t - 1));
    detail::fail(op, ": the tags of sentence ", chains.number_of(chain), " are not allowed: at position ", t, ", tag ",
                 name_of_tag(tag), " cannot come ", why);
  }
};

// ---- composed of ops: what can be differentiated again --------------------------------------------------------------

struct Expected {
  Tensor tags;         // [len, tags]: how probable
  Tensor transitions;  // [tags, tags]: how often to be expected
};

/// Of one chain.
Expected expected_counts(const Tensor& e, const Tensor& transitions, const Tensor& start, const Tensor& end) {
  const auto [alpha, beta, log_z] = forward_backward(
      e, start.defined() ? start : zeros_like(e[0]), end.defined() ? end : zeros_like(e[0]),
      [&](const Tensor& a) { return logsumexp(a.unsqueeze(1) + transitions, 0); },
      [&](const Tensor& b) { return logsumexp(transitions + b.unsqueeze(0), 1); });
  Tensor counts = zeros_like(transitions);
  for (size_t t = alpha.size() - 1; t > 0; --t) {
    const Tensor into = (e[static_cast<int64_t>(t)] + beta[t]).unsqueeze(0);
    counts = counts + exp(alpha[t - 1].unsqueeze(1) + (transitions + into) - log_z);
  }
  return {exp(stack(alpha) + stack(beta) - log_z), counts};
}

// ---- the log likelihood ---------------------------------------------------------------------------------------------

struct LikelihoodRule {
  Chains shape;  // sizes only
  SavedTensor emissions, transitions, start, end, tags, offsets, lengths, alpha, norm;

  void operator()(Backward& back) {
    Chains chains = shape;
    const auto get = [&](const SavedTensor& saved) { return saved.defined() ? back.get(saved) : Tensor(); };
    chains.emissions = get(emissions), chains.transitions = get(transitions);
    chains.start = get(start), chains.end = get(end), chains.offsets = get(offsets), chains.lengths = get(lengths);
    back.create_graph() ? composed(back, chains) : fused(back, chains);
  }

  void fused(Backward& back, const Chains& chains) {
    const Tensor g = back.grad().contiguous(), observed = back.get(tags), a = back.get(alpha), n = back.get(norm);
    Tensor grads[4] = {chains.like(chains.emissions), chains.like(chains.transitions)};
    if (chains.start.defined()) grads[2] = chains.like(chains.start);
    if (chains.end.defined()) grads[3] = chains.like(chains.end);
    const Tensor scratch = chains.make({2, chains.tags});
    Crf crf = chains.describe();
    crf.observed = view_of(observed).as<const int64_t>();
    crf.alpha = view_of(a).data, crf.norm = view_of(n).data, crf.scratch = view_of(scratch).data;
    crf.grad = view_of(g).data, crf.grad_emissions = view_of(grads[0]).data;
    crf.grad_transitions = view_of(grads[1]).data;
    crf.grad_start = chains.start.defined() ? view_of(grads[2]).data : nullptr;
    crf.grad_end = chains.end.defined() ? view_of(grads[3]).data : nullptr;
    kernels_of(g).crf_grad(crf);
    for (int i = 0; i < 4; ++i) back.set(i, std::move(grads[i]));
  }

  void composed(Backward& back, const Chains& chains) {
    const Tensor observed = back.get(tags), each = back.grad().reshape({chains.count});
    std::vector<Tensor> parts;
    Tensor sums[3];  // of transitions, start, end
    const auto add = [](Tensor& sum, const Tensor& x) { sum = sum.defined() ? sum + x : x; };
    for (int64_t s = 0; s < chains.count; ++s) {
      const Tensor g = each[s], e = chains.part(chains.emissions, s), y = chains.part(observed, s);
      const int64_t len = e.size(0);
      const Expected expected = expected_counts(e, chains.transitions, chains.start, chains.end);
      const Tensor seen = one_hot(y, chains.tags).to(e.dtype()), gap = g * (seen - expected.tags);
      const Tensor pairs = matmul(seen.narrow(0, 0, len - 1).t(), seen.narrow(0, 1, len - 1));
      parts.push_back(gap);
      add(sums[0], g * (pairs - expected.transitions));
      if (chains.start.defined()) add(sums[1], gap[0]);
      if (chains.end.defined()) add(sums[2], gap[len - 1]);
    }
    back.set(0, chains.join(std::move(parts)));
    for (int i = 0; i < 3; ++i) back.set(1 + i, std::move(sums[i]));
  }
};

Tensor log_likelihood(const char* op, const Chains& chains, const Tensor& tags, const CrfConstraints& allowed) {
  const Targets targets(op, chains, allowed);
  const Tensor y = chains.make(chains.result_shape());
  const Tensor alpha = chains.like(chains.emissions), norm = chains.like(chains.emissions);
  Crf crf = chains.describe();
  crf.observed = tags.defined() ? view_of(tags).as<const int64_t>() : nullptr;
  crf.result = view_of(y).data, crf.alpha = view_of(alpha).data, crf.norm = view_of(norm).data;
  targets.describe(crf);
  kernels_of(y).crf(crf);
  targets.check(op, chains, tags, allowed.names);
  if (recording(chains.emissions, chains.transitions, chains.start, chains.end)) {
    const auto save = [](const Tensor& t) { return saved_if(t.defined(), t); };
    LikelihoodRule rule{.shape = {},
                        .emissions = save(chains.emissions),
                        .transitions = save(chains.transitions),
                        .start = save(chains.start),
                        .end = save(chains.end),
                        .tags = save(tags),
                        .offsets = save(chains.offsets),
                        .lengths = save(chains.lengths),
                        .alpha = save(alpha),
                        .norm = save(norm)};
    rule.shape.count = chains.count, rule.shape.steps = chains.steps;
    rule.shape.tags = chains.tags, rule.shape.stride = chains.stride, rule.shape.ragged = chains.ragged;
    record(op, y, inputs(chains.emissions, chains.transitions, chains.start, chains.end), std::move(rule));
  }
  return y;
}

}  // namespace

Tensor crf_log_likelihood(const Tensor& emissions, const Tensor& tags, const Tensor& transitions, const Tensor& start,
                          const Tensor& end, const Tensor& lengths, const CrfConstraints& allowed) {
  constexpr Op op = "crf_log_likelihood";
  return call(op, {emissions, tags, transitions, start, end, lengths}, {},
              [&](const Tensor& emissions, const Tensor& tags, const Tensor& transitions, const Tensor& start,
                  const Tensor& end, const Tensor& lengths) {
                const Chains chains = read_chains(op, emissions, transitions, start, end, lengths);
                return log_likelihood(op, chains, read_tags(op, tags, chains), allowed).to(emissions.dtype());
              });
}

Tensor crf_log_likelihood(TensorList emissions, TensorList tags, const Tensor& transitions, const Tensor& start,
                          const Tensor& end, const CrfConstraints& allowed) {
  constexpr Op op = "crf_log_likelihood";
  REEL_CHECK(!emissions.empty() && emissions.size() == tags.size(), op, ": ", emissions.size(), " chains with ",
             tags.size(), " lists of tags");
  std::vector<int64_t> offsets, lengths;
  int64_t rows = 0;
  bool some_empty = false;
  for (size_t i = 0; i < emissions.size(); ++i) {
    const Shape& shape = view_of(emissions[i], op).shape;
    REEL_CHECK(shape.size() == 2, op, ": chain ", i, " has emissions of shape ", shape, ", not [len, tags]");
    REEL_CHECK(view_of(tags[i], op).shape == Shape{shape[0]}, op, ": chain ", i, " has emissions of shape ", shape,
               " but tags of shape ", tags[i].shape());
    offsets.push_back(rows), lengths.push_back(shape[0]);
    rows += shape[0];
    some_empty = some_empty || shape[0] == 0;
  }
  return call(
      op, {transitions, start, end}, emissions, {},
      [&](const Tensor& transitions, const Tensor& start, const Tensor& end, std::span<const Tensor> emissions) {
        if (some_empty)
          return crf_log_likelihood(Ragged::of(emissions), Ragged::of(tags), transitions, start, end, allowed);
        const Tensor all = cat(emissions, 0);
        Chains chains = read_chains(op, all, transitions, start, end, {});
        chains.offsets = tensor(offsets).to(all.device()), chains.lengths = tensor(lengths).to(all.device());
        chains.count = static_cast<int64_t>(lengths.size());
        return log_likelihood(op, chains, read_tags(op, cat(tags, 0), chains), allowed).to(all.dtype());
      });
}

namespace {

/// The chains of a Ragged that are not empty, of which there is one at least.
Chains read_ragged(const char* op, const Ragged& emissions, const Tensor& transitions, const Tensor& start,
                   const Tensor& end) {
  Chains chains = read_chains(op, emissions.values, transitions, start, end, {});
  const LengthsOnDevice where = on_device(emissions);
  chains.offsets = where.starts(), chains.lengths = where.lengths_of();
  chains.count = count_not_empty(*emissions.lengths);
  chains.ragged = emissions.lengths;
  return chains;
}
/// A number for each chain that is not empty; 0 for the others.
Tensor with_empty(const Ragged& emissions, const Tensor& y) {
  const int64_t n = emissions.lengths->size();
  if (y.size(0) == n) return y;
  const Tensor all = zeros({n}, {.dtype = y.dtype(), .device = y.device()});
  return index_copy(all, 0, on_device(emissions).not_empty(), y);
}
void check_ragged(const char* op, const Ragged& emissions) {
  REEL_CHECK(detail::rows_of(op, emissions).dim() == 2, op, ": emissions with values of shape ",
             emissions.values.shape(), ", not [total, tags]");
}

Tensor marginals(const Chains& chains) {
  if (recording(chains.emissions, chains.transitions, chains.start, chains.end)) {
    std::vector<Tensor> parts;
    for (int64_t s = 0; s < chains.count; ++s)
      parts.push_back(
          expected_counts(chains.part(chains.emissions, s), chains.transitions, chains.start, chains.end).tags);
    return chains.join(std::move(parts));
  }
  // The derivative of log Z, which is that of -log Z for an incoming -1.
  const Tensor y = chains.like(chains.emissions), alpha = chains.like(y), norm = chains.like(y);
  const Tensor log_z = chains.make({chains.count}), counts = chains.like(chains.transitions);
  const Tensor scratch = chains.make({2, chains.tags});
  const Tensor g = full({chains.count}, -1, {.dtype = y.dtype(), .device = y.device()});
  Crf crf = chains.describe();
  crf.result = view_of(log_z).data, crf.alpha = view_of(alpha).data, crf.norm = view_of(norm).data;
  crf.grad = view_of(g).data, crf.grad_emissions = view_of(y).data, crf.grad_transitions = view_of(counts).data;
  crf.scratch = view_of(scratch).data;
  kernels_of(y).crf(crf);
  kernels_of(y).crf_grad(crf);
  return y;
}

}  // namespace

Tensor crf_log_likelihood(const Ragged& emissions, const Ragged& tags, const Tensor& transitions, const Tensor& start,
                          const Tensor& end, const CrfConstraints& allowed) {
  constexpr Op op = "crf_log_likelihood";
  check_ragged(op, emissions);
  detail::check_same_lengths(op, emissions, tags);
  return call(op, {emissions.values, tags.values, transitions, start, end}, {},
              [&, lengths = emissions.lengths](const Tensor& values, const Tensor& tags, const Tensor& transitions,
                                               const Tensor& start, const Tensor& end) {
                if (lengths->total() == 0) {
                  const Tensor y = zeros({lengths->size()}, {.dtype = values.dtype(), .device = values.device()});
                  record_constant(op, y, values);
                  return y;
                }
                const Ragged emissions{values, lengths};
                const Chains chains = read_ragged(op, emissions, transitions, start, end);
                const Tensor y = log_likelihood(op, chains, read_tags(op, tags, chains), allowed);
                return with_empty(emissions, y).to(values.dtype());
              });
}

Tensor crf_marginals(const Tensor& emissions, const Tensor& transitions, const Tensor& start, const Tensor& end,
                     const Tensor& lengths) {
  constexpr Op op = "crf_marginals";
  return call(op, {emissions, transitions, start, end, lengths}, {},
              [&](const Tensor& emissions, const Tensor& transitions, const Tensor& start, const Tensor& end,
                  const Tensor& lengths) {
                return marginals(read_chains(op, emissions, transitions, start, end, lengths)).to(emissions.dtype());
              });
}

Ragged crf_marginals(const Ragged& emissions, const Tensor& transitions, const Tensor& start, const Tensor& end) {
  constexpr Op op = "crf_marginals";
  check_ragged(op, emissions);
  const auto run = [&](const Tensor& values, const Tensor& transitions, const Tensor& start, const Tensor& end) {
    if (emissions.lengths->total() == 0) return values * 0;
    return marginals(read_ragged(op, {values, emissions.lengths}, transitions, start, end)).to(values.dtype());
  };
  return {call(op, {emissions.values, transitions, start, end}, {}, run), emissions.lengths};
}

// ---- decoding -------------------------------------------------------------------------------------------------------

namespace {

CrfPaths decode(const char* op, Chains chains, const CrfConstraints& allowed) {
  const auto forbid = [&](Tensor& potential, const Tensor& given, const Shape& shape) {
    const Tensor mask = read_mask(op, given, shape, chains);
    if (!mask.defined()) return;
    const Tensor all = potential.defined() ? potential : zeros(shape, {.dtype = chains.emissions.dtype()});
    potential = masked_fill(all.to(chains.emissions.device()), logical_not(mask), kForbidden);
  };
  forbid(chains.transitions, allowed.transitions, {chains.tags, chains.tags});
  forbid(chains.start, allowed.start, {chains.tags});
  forbid(chains.end, allowed.end, {chains.tags});
  Shape rows = chains.emissions.shape();
  rows.resize(rows.size() - 1);
  const Device device = chains.emissions.device();
  const CrfPaths paths{make_tensor(rows, kInt64, device), chains.make(chains.result_shape())};
  const Tensor scratch = chains.make({2, chains.tags});
  const Tensor ways = make_tensor(chains.emissions.shape(), kInt32, device);
  Crf crf = chains.describe();
  crf.result = view_of(paths.scores).data, crf.scratch = view_of(scratch).data;
  crf.from = view_of(ways).as<int32_t>(), crf.path = view_of(paths.tags).as<int64_t>();
  kernels_of(ways).crf_decode(crf);
  return paths;
}

}  // namespace

CrfPaths crf_decode(const Tensor& emissions, const Tensor& transitions, const Tensor& start, const Tensor& end,
                    const Tensor& lengths, const CrfConstraints& allowed) {
  const NoGrad guard;
  constexpr Op op = "crf_decode";
  return call(op, {emissions, transitions, start, end, lengths}, {},
              [&](const Tensor& emissions, const Tensor& transitions, const Tensor& start, const Tensor& end,
                  const Tensor& lengths) {
                const CrfPaths paths =
                    decode(op, read_chains(op, emissions, transitions, start, end, lengths), allowed);
                return CrfPaths{paths.tags, paths.scores.to(emissions.dtype())};
              });
}

RaggedCrfPaths crf_decode(const Ragged& emissions, const Tensor& transitions, const Tensor& start, const Tensor& end,
                          const CrfConstraints& allowed) {
  const NoGrad guard;
  constexpr Op op = "crf_decode";
  check_ragged(op, emissions);
  const auto run = [&, lengths = emissions.lengths](const Tensor& values, const Tensor& transitions,
                                                    const Tensor& start, const Tensor& end) {
    if (lengths->total() == 0)
      return CrfPaths{zeros({0}, {.dtype = kInt64, .device = values.device()}),
                      zeros({lengths->size()}, {.dtype = values.dtype(), .device = values.device()})};
    const Ragged emissions{values, lengths};
    const CrfPaths paths = decode(op, read_ragged(op, emissions, transitions, start, end), allowed);
    return CrfPaths{paths.tags, with_empty(emissions, paths.scores).to(values.dtype())};
  };
  const CrfPaths paths = call(op, {emissions.values, transitions, start, end}, {}, run);
  return {{paths.tags, emissions.lengths}, paths.scores};
}

CrfConstraints crf_bio_constraints(const std::vector<std::string>& tag_names) {
  struct Tag {
    char part;  // B, I, E, S or O
    std::string type;
  };
  std::vector<Tag> tags;
  bool has_ends = false;
  for (const std::string& name : tag_names) {
    constexpr std::string_view written = "BIESLU", meant = "BIESES";
    const size_t part = name.size() > 2 && name[1] == '-' ? written.find(name[0]) : std::string::npos;
    REEL_CHECK(name == "O" || part != std::string::npos, "crf_bio_constraints: the tag '", name,
               "' is neither O nor one of B-, I-, E-, S-, L-, U- and a type");
    tags.push_back(name == "O" ? Tag{'O', ""} : Tag{meant[part], name.substr(2)});
    has_ends = has_ends || tags.back().part == 'E';
  }
  const auto opens = [&](const Tag& tag) { return tag.part == 'O' || tag.part == 'B' || tag.part == 'S'; };
  const auto closes = [&](const Tag& tag) { return !has_ends || (tag.part != 'B' && tag.part != 'I'); };
  const auto inside = [](const Tag& tag) { return tag.part == 'B' || tag.part == 'I'; };
  std::vector<bool> pairs, first, last;
  for (const Tag& a : tags) {
    first.push_back(opens(a)), last.push_back(closes(a));
    for (const Tag& b : tags) pairs.push_back(opens(b) ? closes(a) : inside(a) && a.type == b.type);
  }
  const int64_t n = static_cast<int64_t>(tags.size());
  return {tensor(pairs).reshape({n, n}), tensor(first), tensor(last), tag_names};
}

}  // namespace reel
