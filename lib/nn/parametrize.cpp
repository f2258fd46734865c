#include "reel/nn/parametrize.h"

#include <algorithm>

#include "lib/autograd/autocast.h"
#include "lib/nn/hooks.h"
#include "reel/autograd.h"
#include "reel/nn/container.h"
#include "reel/ops.h"
#include "reel/random.h"

namespace reel::nn {

namespace internal {

// All that one parameter is computed from and by.
struct ParametrizationList : Module {
  std::vector<Parameter> originals;
  std::vector<std::unique_ptr<Parametrization>> chain;

  Tensor value() const {
    const std::vector<Tensor> given(originals.begin(), originals.end());
    Tensor x = chain[0]->forward(given);
    for (size_t i = 1; i < chain.size(); ++i) x = chain[i]->forward({&x, 1});
    return x;
  }
  void append(std::unique_ptr<Parametrization> f) {
    register_module(std::to_string(chain.size()), *f);
    chain.push_back(std::move(f));
  }
  std::string name() const override { return "ParametrizationList"; }
};

Tensor Computed::value() const { return list->value(); }

Tensor Computed::shown() const {
  struct Evaluating {
    std::vector<std::pair<Module*, bool>> modes;
    explicit Evaluating(Module& module) {
      for (Module* part : module.modules()) modes.emplace_back(part, part->is_training());
      module.eval();
    }
    ~Evaluating() {
      for (const auto& [part, mode] : modes) part->train(mode);  // each after those around it
    }
  } const evaluating(*list);
  NoGrad guard;
  return value().detach();
}

namespace {

using Lists = ModuleDict<ParametrizationList>;

Computed* find_computed(const Module& module, std::string_view name) {
  Hooks* hooks = ModuleParts::hooks(module);
  if (!hooks) return nullptr;
  const auto found = std::find_if(hooks->computed.begin(), hooks->computed.end(),
                                  [&](const Computed& computed) { return computed.name == name; });
  return found == hooks->computed.end() ? nullptr : &*found;
}

void check_not_running(const char* op, const Module& module) {
  const Hooks* hooks = ModuleParts::hooks(module);
  REEL_CHECK(!hooks || !hooks->depth, op, ": ", module.name(), " is being called");
}

void check_fits(const Tensor& value, const Tensor& parameter) {
  REEL_CHECK(value.defined(), "register_parametrization: the computed value is undefined");
  REEL_CHECK(value.shape() == parameter.shape() && value.dtype() == parameter.dtype(),
             "register_parametrization: the parameter is ", parameter.dtype(), " ", parameter.shape(),
             ", the computed value ", value.dtype(), " ", value.shape());
}

struct FunctionParametrization : Parametrization {
  explicit FunctionParametrization(std::function<Tensor(const Tensor&)> f) : f_(std::move(f)) {
    REEL_CHECK(f_, "register_parametrization: the function is empty");
  }
  Tensor forward(TensorList originals) override { return f_(originals[0]); }

 private:
  std::function<Tensor(const Tensor&)> f_;
};

void append_to_chain(Computed& computed, std::unique_ptr<Parametrization> f) {
  NoGrad guard;
  const Tensor before = computed.list->value(), after = f->forward({&before, 1});
  check_fits(after, before);
  computed.list->append(std::move(f));
  computed.handle() = after.detach();
}

}  // namespace
}  // namespace internal

using internal::Computed, internal::Hooks, internal::ModuleParts, internal::ParametrizationList;

namespace {

/// The module's own parameter of that name, which a call of the module can compute.
Parameter& own_parameter(const char* op, Module& module, std::string_view name) {
  REEL_CHECK(name.find('.') == std::string_view::npos, op, ": '", name, "' is in a part of ", module.name(),
             "; give that part as the module");
  return module.get_parameter(name);
}

/// The same, or one that is computed already.
const Tensor& shown_parameter(const char* op, Module& module, std::string_view name) {
  const Computed* computed = internal::find_computed(module, name);
  return computed ? computed->handle() : own_parameter(op, module, name);
}

}  // namespace

void register_parametrization(Module& module, std::string_view name, std::unique_ptr<Parametrization> f) {
  constexpr const char* kOp = "register_parametrization";
  REEL_CHECK(f, kOp, ": the parametrization is null");
  internal::check_not_running(kOp, module);
  f->train(module.is_training());
  if (Computed* computed = internal::find_computed(module, name))
    return internal::append_to_chain(*computed, std::move(f));

  ModuleParts::check_layer(kOp, module);
  Parameter& parameter = own_parameter(kOp, module, name);
  auto list = std::make_unique<ParametrizationList>();
  Tensor value;
  {
    NoGrad guard;
    const std::vector<Tensor> originals = f->right_inverse(parameter.detach());
    REEL_CHECK(!originals.empty(), kOp, ": right_inverse gives nothing");
    value = f->forward(originals);
    internal::check_fits(value, parameter);
    const bool several = originals.size() > 1, requires_grad = parameter.requires_grad();
    for (size_t i = 0; i < originals.size(); ++i) {
      const Tensor own = several || !(originals[i].shape() == parameter.shape())
                             ? originals[i].clone().detach()
                             : Tensor(parameter).copy_(originals[i]);
      list->originals.emplace_back(*list, several ? "original" + std::to_string(i) : "original", own)
          .requires_grad_(requires_grad);
    }
    list->append(std::move(f));
    list->train(module.is_training());
  }

  Hooks& hooks = ModuleParts::make_hooks(module);
  if (!hooks.parametrizations) {
    hooks.parametrizations = std::make_unique<internal::Lists>();
    module.register_module("parametrizations", *hooks.parametrizations);
  }
  ParametrizationList& kept =
      hooks.parametrizations->as_ref<internal::Lists>().insert(std::string(name), std::move(list));
  hooks.computed.push_back({.member = &parameter, .list = &kept, .name = std::string(name)});
  ModuleParts::find(module, name)->kind = internal::TensorKind::kComputed;
  hooks.computed.back().handle() = value.detach();
}

void register_parametrization(Module& module, std::string_view name, std::function<Tensor(const Tensor&)> f) {
  register_parametrization(module, name, std::make_unique<internal::FunctionParametrization>(std::move(f)));
}

bool is_parametrized(const Module& module, std::string_view name) {
  return internal::find_computed(module, name) != nullptr;
}

void remove_parametrizations(Module& module, std::string_view name, RemoveParametrizationsOptions options) {
  internal::check_not_running("remove_parametrizations", module);
  const Computed* computed = internal::find_computed(module, name);
  REEL_CHECK(computed, "remove_parametrizations: '", name, "' of ", module.name(), " is not parametrized");
  const std::vector<Parameter>& originals = computed->list->originals;
  REEL_CHECK(options.leave_parametrized || originals.size() == 1, "remove_parametrizations: '", name,
             "' is computed from ", originals.size(), " tensors, none of which is the original");

  const bool requires_grad = originals[0].requires_grad();
  Tensor plain = originals[0];
  if (options.leave_parametrized) {
    NoGrad guard;
    const Tensor value = computed->list->value();
    if (originals.size() == 1 && plain.shape() == value.shape())
      plain.copy_(value);
    else
      plain = value.clone().detach();
  }
  auto& member = static_cast<Parameter&>(*computed->member);
  Hooks& hooks = *ModuleParts::hooks(module);
  std::erase_if(hooks.computed, [&](const Computed& c) { return c.member == &member; });
  hooks.parametrizations->as_ref<internal::Lists>().erase(name);
  if (hooks.computed.empty()) hooks.parametrizations.reset();
  ModuleParts::find(module, name)->kind = internal::TensorKind::kParameter;
  member = plain;
  member.requires_grad_(requires_grad);
  ModuleParts::drop_empty_hooks(module);
}

// ---- weight normalisation -------------------------------------------------------------------------------------------

namespace {

struct WeightNorm : Parametrization {
  explicit WeightNorm(std::optional<int64_t> dim) : dim(dim) {}
  Tensor norms(const Tensor& v) const {
    if (!dim) return norm(v);
    Dims others;
    for (int64_t d = 0; d < v.dim(); ++d)
      if (d != *dim) others.dims.push_back(d);
    return others.dims.empty() ? abs(v) : norm(v, 2, others, true);
  }
  Tensor forward(TensorList originals) override { return originals[1] * (originals[0] / norms(originals[1])); }
  std::vector<Tensor> right_inverse(const Tensor& value) override { return {norms(value), value}; }
  std::string name() const override { return "_WeightNorm"; }
  const std::optional<int64_t> dim;
};

int64_t wrap(const char* op, int64_t dim, const Tensor& weight) {
  const int64_t rank = weight.dim();
  REEL_CHECK(dim >= -rank && dim < rank, op, ": dimension ", dim, " of a weight of shape ", weight.shape());
  return dim < 0 ? dim + rank : dim;
}

}  // namespace

void weight_norm(Module& module, std::string_view name, WeightNormOptions options) {
  if (options.dim) options.dim = wrap("weight_norm", *options.dim, shown_parameter("weight_norm", module, name));
  register_parametrization(module, name, std::make_unique<WeightNorm>(options.dim));
}

// ---- spectral normalisation -----------------------------------------------------------------------------------------

namespace {

struct SpectralNorm : Parametrization {
  SpectralNorm(const Tensor& weight, SpectralNormOptions given) : options(given) {
    NoGrad guard;
    if (weight.dim() < 2) return;
    const Tensor w = matrix(weight.detach());
    const TensorOptions like{.dtype = w.dtype(), .device = w.device()};
    u = unit(randn({w.size(0)}, like));
    v = unit(randn({w.size(1)}, like));
    iterate(w, 15);
  }
  Tensor forward(TensorList originals) override {
    const AutocastOff exact;
    const Tensor& weight = originals[0];
    if (!u.defined()) return unit(weight);
    const Tensor w = matrix(weight);
    if (is_training()) no_grad([&] { iterate(w.detach(), options.n_power_iterations); });
    // Copies, which the next call does not change.
    return weight / dot(u.clone(), matmul(w, v.clone()));
  }
  std::string name() const override { return "_SpectralNorm"; }

  Tensor matrix(const Tensor& weight) const {
    Shape order{options.dim};
    for (int64_t d = 0; d < weight.dim(); ++d)
      if (d != options.dim) order.push_back(d);
    return (options.dim ? weight.permute(order) : weight).flatten(1);
  }
  Tensor unit(const Tensor& x) const { return x / maximum(norm(x), options.eps); }
  void iterate(const Tensor& w, int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
      u.copy_(unit(matmul(w, v)));
      v.copy_(unit(matmul(w.t(), u)));
    }
  }

  const SpectralNormOptions options;
  Buffer u{*this, "_u"}, v{*this, "_v"};
};

}  // namespace

void spectral_norm(Module& module, std::string_view name, SpectralNormOptions options) {
  const Tensor& weight = shown_parameter("spectral_norm", module, name);
  REEL_CHECK(options.n_power_iterations > 0, "spectral_norm: ", options.n_power_iterations, " power iterations");
  options.dim = wrap("spectral_norm", options.dim, weight);
  register_parametrization(module, name, std::make_unique<SpectralNorm>(weight, options));
}

}  // namespace reel::nn
