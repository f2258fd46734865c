// This file folds batch norms into the layers in front of them, and finds which those are.
#include "reel/nn/fuse.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <ostream>
#include <set>
#include <typeinfo>
#include <utility>

#include "lib/nn/dry_run.h"
#include "lib/nn/fold.h"
#include "lib/ops/fused.h"
#include "lib/tensor/op_trace.h"
#include "reel/nn/activation.h"
#include "reel/nn/conv.h"
#include "reel/nn/linear.h"
#include "reel/nn/norm.h"
#include "reel/nn/sequential.h"
#include "reel/ops.h"

namespace reel::nn {
namespace internal {
namespace {

constexpr const char* kCaller = "fuse_for_inference";

}  // namespace

/// A Fusion finds and fuses the layers of one model.
class Fusion {
 public:
  explicit Fusion(Module& model) : model_(model) {
    for (Module* module : model.modules())
      for (const ModuleParts::Entry& entry : ModuleParts::entries(*module))
        if (entry.tensor && entry.tensor->defined()) ++registrations_[TensorImpl::of(*entry.tensor)];
    for (Module* module : model.modules()) {
      const bool has_hooks = ModuleParts::hooks(*module);
      if (const std::optional<Weighted> layer = weighted(*module))
        layers_.push_back(*layer), layers_.back().has_hooks = has_hooks;
      if (const std::optional<Norm> norm = norm_of(*module))
        norms_.push_back(*norm), norms_.back().has_hooks = has_hooks;
    }
  }

  /// Plans what the steps of each Sequential show.
  void plan_from_sequentials() {
    for (Module* module : model_.modules()) {
      const auto* const sequential = module->as<Sequential>();
      if (!sequential) continue;
      const auto& steps = sequential->steps_;
      for (size_t i = 0; i < steps.size(); ++i) {
        Weighted* const layer = steps[i].layer ? find(layers_, steps[i].layer.get()) : nullptr;
        if (!layer) continue;
        size_t next = i + 1;
        Norm* const norm = next < steps.size() && steps[next].layer ? find(norms_, steps[next].layer.get()) : nullptr;
        const bool folds = norm && plan_fold(*layer, *norm);
        if (folds) ++next;
        if (layer->relu && (folds || !norm) && next < steps.size() && is_relu(steps[next]) && !layer->has_hooks)
          layer->rectified = true;
      }
    }
    for (Norm& norm : norms_)
      if (norm.reason.empty())
        norm.reason = "it does not follow a layer in a Sequential; give fuse_for_inference inputs";
  }

  /// Plans what one run shows. It throws what the run or its trace throws.
  void plan_from_run(const std::vector<Tensor>& inputs, const std::function<std::vector<Tensor>()>& run) {
    std::map<const Module*, int> calls;
    DryRun dry_run(model_);
    for (Module* module : model_.modules())
      if (find(layers_, module) || find(norms_, module))
        dry_run.before(*module, [&calls](Module& called, std::vector<Tensor>&) { ++calls[&called]; });
    NoGrad guard;
    OpTrace trace(kCaller, inputs);
    const Uses uses(trace, run());
    for (Weighted& layer : layers_) {
      const std::vector<int> ops = uses.readers_of(*layer.weight);
      if (ops.size() != 1 || calls[layer.module] != 1) continue;
      const TracedOp& op = trace.ops()[static_cast<size_t>(ops[0])];
      if (op.inputs.size() < 2 || op.inputs[1] < 0 || !uses.tensor(op.inputs[1]).is_same(*layer.weight)) continue;
      Step step = uses.after(op.outputs[0]);
      Norm* const norm =
          step.op && step.op->name == "batch_norm" && step.is_in_place() ? find_by_mean(uses, *step.op) : nullptr;
      if (norm) {
        if (calls[norm->module] != 1 || uses.readers_of(norm->mean()).size() != 1)
          norm->reason = "it is not called once, as a layer";
        else if (step.kept)
          norm->reason = "the output of " + ModuleParts::label(*layer.module) + " is kept beyond the call";
        else if (uses.tensor(op.outputs[0]).dim() != layer.dims)
          norm->reason = "the output of " + ModuleParts::label(*layer.module) + " has another number of dimensions";
        else if (plan_fold(layer, *norm))
          step = uses.after(step.op->outputs[0], step.order);
        if (!norm->reason.empty()) continue;
      }
      if (layer.relu && !layer.has_hooks && step.op && step.op->name == "relu" && !step.kept) layer.rectified = true;
    }
    for (Norm& norm : norms_)
      if (norm.reason.empty())
        norm.reason = calls[norm.module] ? "it does not follow a layer whose output is used by it alone"
                                         : "it was not called as a layer";
  }

  /// Does what has been planned.
  FusionReport apply() {
    FusionReport report;
    NoGrad guard;
    std::set<const Norm*> folded;
    // All is computed before anything is changed, which running out of memory then leaves as it was.
    std::vector<Folded> values;
    for (const Weighted& layer : layers_)
      values.push_back(layer.norm ? layer.norm->fold_into(*layer.weight, *layer.bias, layer.out_dim, layer.groups)
                                  : Folded());
    for (size_t i = 0; i < layers_.size(); ++i) {
      Weighted& layer = layers_[i];
      std::string with;
      if (layer.norm) {
        Norm& norm = *layer.norm;
        *layer.weight = values[i].weight, *layer.bias = values[i].bias;
        norm.clear();
        ModuleParts::folded_dims(*norm.module) = static_cast<int8_t>(layer.dims);
        folded.insert(&norm);
        with = ModuleParts::label(*norm.module);
      }
      if (layer.rectified) *layer.relu = true, with += with.empty() ? "relu" : ", relu";
      if (!with.empty()) report.fused.push_back(ModuleParts::label(*layer.module) + ": " + with);
      if (layer.weight->defined()) {
        keep_packed(*layer.weight);
        const std::string path = layer.module->path();
        report.packed.push_back(path.empty() ? "weight" : path + ".weight");
      }
    }
    for (const Norm& norm : norms_)
      if (!folded.contains(&norm)) report.kept.push_back(ModuleParts::label(*norm.module) + ": " + norm.reason);
    model_.eval();
    model_.requires_grad_(false);
    for (Module* module : model_.modules()) ModuleParts::fused(*module) = true;
    return report;
  }

 private:
  struct Norm {
    Module* module;
    RegisteredTensor *weight, *bias, *running_mean, *running_var, *count;
    double eps;
    int64_t features;
    int spatial;  // dimensions of the inputs, but for the batch and the channels
    bool channels_last, has_hooks = false;
    std::string reason = {};  // why it is not folded
    const Tensor& mean() const { return *running_mean; }
    Folded fold_into(const Tensor& to, const Tensor& offset, int out_dim, int64_t groups) const {
      return fold_batch_norm(to, offset, out_dim, groups, {mean(), *running_var, *weight, *bias, eps});
    }
    void clear() {
      for (RegisteredTensor* tensor : {weight, bias, running_mean, running_var, count})
        static_cast<Tensor&>(*tensor) = Tensor();
    }
  };
  struct Weighted {
    Module* module;
    Parameter *weight, *bias;
    bool* relu;  // nullptr where no kernel computes one as well
    int64_t out, groups;
    int out_dim;  // of the weight
    int dims;     // of the results
    bool channels_last;
    bool has_hooks = false;
    Norm* norm = nullptr;  // to be folded into it
    bool rectified = false;
  };

  /// A Step is the op that alone reads a value, and how the value's dimensions were permuted on the way.
  struct Step {
    const TracedOp* op = nullptr;
    std::vector<int64_t> order;
    bool kept = false;  // somebody has a handle to the value after the run
    bool is_in_place() const { return std::is_sorted(order.begin(), order.end()); }
  };

  /// Uses tell which ops of a trace read a value.
  class Uses {
   public:
    Uses(OpTrace& trace, const std::vector<Tensor>& outputs) : trace_(trace), readers_(trace.values().size()) {
      for (size_t i = 0; i < trace.ops().size(); ++i)
        for (const int input : trace.ops()[i].inputs)
          if (input >= 0) readers_[static_cast<size_t>(input)].push_back(static_cast<int>(i));
      for (const Tensor& output : outputs)
        if (const int value = trace.value_of("an output", output); std::cmp_less(value, readers_.size()) && value >= 0)
          readers_[static_cast<size_t>(value)].push_back(kResult);
    }
    const Tensor& tensor(int value) const { return trace_.values()[static_cast<size_t>(value)].tensor; }
    /// Returns the op that alone reads a value, behind changes of layout.
    Step after(int value, std::vector<int64_t> order = {}) const {
      Step step{nullptr, std::move(order)};
      if (step.order.empty()) {
        step.order.resize(static_cast<size_t>(tensor(value).dim()));
        std::iota(step.order.begin(), step.order.end(), 0);
      }
      while (true) {
        const std::vector<int>& readers = readers_[static_cast<size_t>(value)];
        if (readers.size() != 1 || readers[0] == kResult) return {};
        const TracedOp& op = trace_.ops()[static_cast<size_t>(readers[0])];
        step.kept = step.kept || static_cast<uint32_t>(TensorImpl::of(tensor(value))->refs.load()) > 1;
        step.op = &op;
        const bool permutes = op.name == "permute";
        if (op.inputs[0] != value || (!permutes && op.name != "clone")) return step;
        if (permutes) {
          const std::vector<int64_t> before = step.order;
          const auto& dims = std::get<std::vector<int64_t>>(op.attributes[0].value);
          for (size_t d = 0; d < before.size(); ++d)
            step.order[d] = before[static_cast<size_t>(dims[d] < 0 ? dims[d] + std::ssize(before) : dims[d])];
        }
        value = op.outputs[0];
      }
    }
    /// Returns the ops that read a parameter or buffer.
    std::vector<int> readers_of(const Tensor& constant) const {
      std::vector<int> all;
      for (size_t i = 0; i < readers_.size(); ++i)
        if (trace_.values()[i].op < 0 && trace_.values()[i].tensor.is_same(constant))
          all.insert(all.end(), readers_[i].begin(), readers_[i].end());
      return all;
    }

   private:
    static constexpr int kResult = -1;
    OpTrace& trace_;
    std::vector<std::vector<int>> readers_;  // of each value
  };

  template <class List>
  static typename List::value_type* find(List& list, const Module* module) {
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.module == module; });
    return found == list.end() ? nullptr : &*found;
  }
  Norm* find_by_mean(const Uses& uses, const TracedOp& op) {
    const auto found = std::find_if(norms_.begin(), norms_.end(), [&](const Norm& norm) {
      return op.inputs[1] >= 0 && norm.mean().defined() && uses.tensor(op.inputs[1]).is_same(norm.mean());
    });
    return found == norms_.end() ? nullptr : &*found;
  }

  template <class Layer>
  static std::optional<Weighted> weighted_if(Module& module, int out_dim, int dims) {
    if (typeid(module) != typeid(Layer)) return {};
    auto& layer = static_cast<Layer&>(module);
    Weighted found{&module, &layer.weight, &layer.bias, nullptr, 0, 1, out_dim, dims, false};
    if constexpr (requires { layer.out_features; })
      found.out = layer.out_features;
    else
      found.out = layer.out_channels, found.groups = layer.options.groups,
      found.channels_last = layer.options.channels_last;
    if constexpr (requires { layer.relu_follows_; }) found.relu = &layer.relu_follows_;
    return found;
  }
  static std::optional<Weighted> weighted(Module& module) {
    if (auto found = weighted_if<Conv1d>(module, 0, 3)) return found;
    if (auto found = weighted_if<Conv2d>(module, 0, 4)) return found;
    if (auto found = weighted_if<Conv3d>(module, 0, 5)) return found;
    if (auto found = weighted_if<ConvTranspose1d>(module, 1, 3)) return found;
    if (auto found = weighted_if<ConvTranspose2d>(module, 1, 4)) return found;
    if (auto found = weighted_if<ConvTranspose3d>(module, 1, 5)) return found;
    return weighted_if<Linear>(module, 0, 2);
  }
  template <int N>
  static std::optional<Norm> norm_if(Module& module) {
    if (typeid(module) != typeid(BatchNorm<N>) || ModuleParts::folded_dims(module)) return {};
    auto& norm = static_cast<BatchNorm<N>&>(module);
    return Norm{&module,
                &norm.weight,
                &norm.bias,
                &norm.running_mean,
                &norm.running_var,
                &norm.num_batches_tracked,
                norm.options.eps,
                norm.num_features,
                N,
                norm.options.channels_last};
  }
  static std::optional<Norm> norm_of(Module& module) {
    if (auto found = norm_if<1>(module)) return found;
    if (auto found = norm_if<2>(module)) return found;
    return norm_if<3>(module);
  }
  static bool is_relu(const Sequential::Step& step) {
    if (step.layer) {
      const Module& layer = *step.layer;
      return typeid(layer) == typeid(ReLU) && !ModuleParts::hooks(layer);
    }
    const auto* const function = step.run.target<Tensor (*)(const Tensor&)>();
    return function && *function == static_cast<Tensor (*)(const Tensor&)>(relu);
  }

  bool is_alone(const Tensor& tensor) const {
    return !tensor.defined() || registrations_.at(TensorImpl::of(tensor)) == 1;
  }
  /// Plans to fold a norm into the layer in front, or notes the reason why it cannot be.
  bool plan_fold(Weighted& layer, Norm& norm) const {
    const std::string front = ModuleParts::label(*layer.module);
    const bool alone = is_alone(*layer.weight) && is_alone(*layer.bias) && is_alone(norm.mean()) &&
                       is_alone(*norm.running_var) && is_alone(*norm.weight) && is_alone(*norm.bias);
    const int spatial = std::max(layer.dims - 2, 1);
    if (norm.has_hooks)
      norm.reason = "it has hooks";
    else if (layer.has_hooks)
      norm.reason = front + " has hooks or a parametrization";
    else if (!norm.mean().defined())
      norm.reason = "it has no running statistics";
    else if (!alone)
      norm.reason = "it or " + front + " shares tensors with another module";
    else if (norm.features != layer.out || norm.spatial != spatial ||
             (layer.dims > 2 && norm.channels_last != layer.channels_last))
      norm.reason = "it normalizes other channels than those of " + front;
    else if (norm.mean().dtype() != layer.weight->dtype() || norm.mean().device() != layer.weight->device())
      norm.reason = "it has another dtype or device than " + front;
    else
      layer.norm = &norm;
    return layer.norm == &norm;
  }

  Module& model_;
  std::map<const TensorImpl*, int> registrations_;  // how many parameters and buffers a tensor is
  std::vector<Weighted> layers_;
  std::vector<Norm> norms_;
};

FusionReport fuse(Module& model, const std::vector<Tensor>& inputs, const std::function<std::vector<Tensor>()>& run) {
  Fusion fusion(model);
  std::string refusal;
  if (run) {
    try {
      fusion.plan_from_run(inputs, run);
    } catch (const Error& error) {
      refusal = error.what();
      if (!refusal.starts_with(kCaller)) throw;  // the model itself has thrown it
    }
  }
  if (!run || !refusal.empty()) fusion.plan_from_sequentials();
  FusionReport report = fusion.apply();
  report.not_traced = std::move(refusal);
  return report;
}

Folded fold_batch_norm(const Tensor& weight, const Tensor& bias, int out_dim, int64_t groups, const NormTensors& norm) {
  const auto wide = [](const Tensor& x) { return x.to(kFloat64); };
  Tensor scale = 1 / sqrt(wide(norm.variance) + norm.eps);
  if (norm.weight.defined()) scale = scale * wide(norm.weight);
  Tensor offset = -wide(norm.mean) * scale;
  if (bias.defined()) offset = offset + wide(bias) * scale;
  if (norm.bias.defined()) offset = offset + wide(norm.bias);
  // A transposed convolution has the channels of its groups in as many blocks of rows.
  const int64_t blocks = out_dim == 0 ? 1 : groups, channels = scale.numel() / blocks;
  const Tensor parts = out_dim == 0 ? wide(weight).reshape({1, 1, channels, -1})
                                    : wide(weight).reshape({blocks, weight.size(0) / blocks, channels, -1});
  const Tensor folded = (parts * scale.reshape({blocks, 1, channels, 1})).reshape(weight.shape());
  return {folded.to(weight.dtype()), offset.to(weight.dtype())};
}

}  // namespace internal

std::string FusionReport::to_string() const {
  std::string text;
  for (const std::string& line : fused) text += "fused: " + line + "\n";
  for (const std::string& line : kept) text += "kept: " + line + "\n";
  if (!not_traced.empty()) text += "not traced: " + not_traced + "\n";
  return text + "packed weights: " + std::to_string(packed.size()) + "\n";
}

std::ostream& operator<<(std::ostream& out, const FusionReport& report) { return out << report.to_string(); }

}  // namespace reel::nn
