#include "reel/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <ostream>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "lib/io/load_options.h"
#include "lib/nn/hooks.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/autograd.h"

namespace reel::nn {
namespace {

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

// The second halves of pairs.
template <class Second>
std::vector<Second> seconds(const std::vector<std::pair<std::string, Second>>& pairs) {
  std::vector<Second> result;
  for (const auto& [path, second] : pairs) result.push_back(second);
  return result;
}

std::string list(const std::vector<std::string>& names, size_t most = SIZE_MAX) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == most) return text + ", … and " + std::to_string(names.size() - i) + " more";
    text += (i ? ", " : "") + names[i];
  }
  return text;
}

// Behind which all of the paths are among the names; empty if there is none.
std::string common_prefix(const std::vector<std::string>& paths, const std::vector<std::string>& names) {
  const std::unordered_set<std::string_view> all(names.begin(), names.end());
  for (const std::string& name : names) {
    if (paths.empty() || !name.ends_with(paths[0])) continue;
    const std::string prefix = name.substr(0, name.size() - paths[0].size());
    if (std::all_of(paths.begin(), paths.end(), [&](const std::string& path) { return all.contains(prefix + path); }))
      return prefix;
  }
  return {};
}

// What may be the reason when a dict that was loaded with `given` as the prefix does not fit.
std::string advice(const LoadResult& result, bool other_shapes, const std::string& given) {
  const auto &missing = result.missing, &unexpected = result.unexpected;
  if (const std::string prefix = common_prefix(missing, unexpected); !prefix.empty())
    return "\n  what is missing is given behind '" + prefix + "': load with {.prefix = \"" + given + prefix + "\"}";
  if (missing.empty() && !unexpected.empty())
    return "\n  is a layer declared without *this, which makes it no part of the module? nn::check finds such";
  if (other_shapes && missing.empty() && unexpected.empty())
    return "\n  {.ignore_mismatched_sizes = true} leaves them as they are";
  return {};
}

// "ns::Outer<ns::Inner>" and "f()::Outer<ns::Inner>" become "Outer<ns::Inner>".
std::string without_namespaces(const std::string& type) {
  size_t start = 0;
  int depth = 0;
  for (size_t i = 0; i < type.size(); ++i) {
    if (type[i] == '<' || type[i] == '(') ++depth;
    if (type[i] == '>' || type[i] == ')') --depth;
    if (depth == 0 && type[i] == ':') start = i + 1;
  }
  return type.substr(start);
}

// An Error that names the module it left.
struct ErrorInModule : Error {
  using Error::Error;
};

}  // namespace

Module::~Module() {
  if (hooks_) hooks_->module = nullptr;
  if (parent_) parent_->unregister_module(*this);
  for (const Entry& entry : entries_)
    if (entry.module)
      entry.module->parent_ = nullptr;
    else
      entry.tensor->owner_ = nullptr;
}

// What refers to a module is its children, its parent's entry, its registered tensors and its hooks.
Module::Module(Module&& other)
    : entries_(std::move(other.entries_)),
      parent_(std::exchange(other.parent_, nullptr)),
      hooks_(std::move(other.hooks_)),
      training_(other.training_),
      fused_(other.fused_),
      folded_dims_(other.folded_dims_) {
  if (hooks_) hooks_->module = this;
  for (const Entry& entry : entries_)
    if (entry.module)
      entry.module->parent_ = this;
    else
      entry.tensor->owner_ = this;
  if (parent_)
    for (Entry& entry : parent_->entries_)
      if (entry.module == &other) entry.module = this;
}

// ---- registration ---------------------------------------------------------------------------------------------------

namespace internal {

namespace {

void check_name(const Module& module, const std::string& name) {
  REEL_CHECK(!name.empty(), "Module: a name is empty");
  REEL_CHECK(name.find('.') == std::string::npos, "Module: the name '", name, "' has a dot");
  for (const ModuleParts::Entry& other : ModuleParts::entries(module))
    REEL_CHECK(other.name != name, "Module: the name '", name, "' is used already");
}

bool is_buffer(TensorKind kind) { return kind == TensorKind::kBuffer || kind == TensorKind::kTransientBuffer; }

// Throws for what cannot be registered or assigned.
void check_tensor(const Module& owner, TensorKind kind, const std::string& name, const Tensor& tensor) {
  const auto who = [&] {
    return std::string(is_buffer(kind) ? "Buffer '" : "Parameter '") + name + "' of " + ModuleParts::label(owner);
  };
  REEL_CHECK(kind != TensorKind::kComputed, who(),
             " is computed by its parametrization; assign to what it is computed from, or call "
             "remove_parametrizations first");
  if (!tensor.defined()) return;
  REEL_CHECK(is_buffer(kind) || tensor.is_floating_point(), who(), ": the tensor is ", tensor.dtype(),
             ", only floating-point tensors can be trained");
  REEL_CHECK(tensor.is_leaf(), who(), ": the tensor was computed from other tensors, detach() it first");
}

}  // namespace

ModuleParts::Entry* ModuleParts::find(Module& module, std::string_view name) {
  const auto found =
      std::find_if(module.entries_.begin(), module.entries_.end(), [&](const Entry& e) { return e.name == name; });
  return found == module.entries_.end() ? nullptr : &*found;
}

RegisteredTensor::RegisteredTensor(Module& owner, TensorKind kind, std::string name, const Tensor& tensor)
    : Tensor(tensor), owner_(&owner) {
  check_name(owner, name);
  check_tensor(owner, kind, name, tensor);
  if (kind == TensorKind::kParameter && defined()) requires_grad_();
  owner.entries_.push_back({.name = std::move(name), .tensor = this, .kind = kind});
}

RegisteredTensor::RegisteredTensor(RegisteredTensor&& other) noexcept
    : Tensor(std::move(static_cast<Tensor&>(other))), owner_(std::exchange(other.owner_, nullptr)) {
  if (!owner_) return;
  for (Module::Entry& entry : owner_->entries_)
    if (entry.tensor == &other) entry.tensor = this;
  if (owner_->hooks_)
    for (Computed& computed : owner_->hooks_->computed)
      if (computed.member == &other) computed.member = this;
}

// Members are destroyed in reverse order, so the search from the back finds at once.
RegisteredTensor::~RegisteredTensor() {
  if (!owner_) return;
  auto& entries = owner_->entries_;
  const auto at =
      std::find_if(entries.rbegin(), entries.rend(), [&](const auto& entry) { return entry.tensor == this; });
  entries.erase(std::next(at).base());
  if (owner_->hooks_) std::erase_if(owner_->hooks_->computed, [&](const Computed& c) { return c.member == this; });
}

void RegisteredTensor::assign(const Tensor& tensor, bool trainable) {
  if (owner_)
    for (const Module::Entry& entry : owner_->entries_)
      if (entry.tensor == this) check_tensor(*owner_, entry.kind, entry.name, tensor);
  Tensor::operator=(tensor);
  if (trainable && defined()) requires_grad_();
}

}  // namespace internal

using internal::ModuleParts, internal::TensorKind;

void Module::check_part(const std::string& name, const Module& child) const {
  REEL_CHECK(child.parent_ == nullptr, "register_module: '", name, "' is part of another module already");
  for (const Module* m = this; m; m = m->parent_)
    REEL_CHECK(m != &child, "register_module: '", name, "' would be part of itself");
  internal::check_name(*this, name);
}

void Module::register_module(std::string name, Module& child) {
  check_part(name, child);
  entries_.push_back({.name = std::move(name), .module = &child});
  child.parent_ = this;
}

void Module::unregister_module(Module& child) {
  // As for tensors: from the back.
  const auto at = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& e) { return e.module == &child; });
  REEL_CHECK(at != entries_.rend(), "unregister_module: it is not a part of this module");
  entries_.erase(std::next(at).base());
  child.parent_ = nullptr;
}

namespace internal {

Module* leave_parent(Module& part, const Module& with, const std::type_info& type) {
  REEL_CHECK(&part != &with, "nn::replace: ", ModuleParts::label(part), " by itself");
  REEL_CHECK(!ModuleParts::parent(with), "nn::replace: what is to replace ", ModuleParts::label(part),
             " is part of another module already");
  REEL_CHECK(typeid(part) == type && typeid(with) == type, "nn::replace: ", ModuleParts::label(part), " and ",
             ModuleParts::label(with), " are not both of the type that is named");
  return std::exchange(ModuleParts::parent(part), nullptr);
}

// The parent's entry has kept the address.
void enter_parent(Module& part, Module* parent) { ModuleParts::parent(part) = parent; }

}  // namespace internal

void Module::check_folded(const Tensor& x) const {
  REEL_CHECK(x.defined() && x.dim() == folded_dims_, name(), ": it was folded into a layer whose results have ",
             static_cast<int>(folded_dims_), " dimensions, got ",
             x.defined() ? x.shape().to_string() : "an undefined tensor");
}

// ---- listing --------------------------------------------------------------------------------------------------------

namespace {

// visit(kind, path, tensor) for the parameters and buffers, without empty ones and those that are computed.
template <class Visit>
void for_each_tensor(const Module& module, const std::string& prefix, bool recurse, const Visit& visit) {
  for (const ModuleParts::Entry& entry : ModuleParts::entries(module)) {
    if (!entry.module && entry.kind != TensorKind::kComputed && entry.tensor->defined())
      visit(entry.kind, join(prefix, entry.name), static_cast<const Tensor&>(*entry.tensor));
    else if (entry.module && recurse)
      for_each_tensor(*entry.module, join(prefix, entry.name), true, visit);
  }
}

std::vector<std::pair<std::string, Tensor>> named(const Module& module, bool buffers, bool recurse) {
  std::vector<std::pair<std::string, Tensor>> result;
  std::unordered_set<const TensorImpl*> seen;
  for_each_tensor(module, "", recurse, [&](TensorKind kind, const std::string& path, const Tensor& tensor) {
    if (internal::is_buffer(kind) != buffers || !seen.insert(TensorImpl::of(tensor)).second) return;
    result.emplace_back(path, tensor);
  });
  return result;
}

void list_modules(Module& module, const std::string& path, std::vector<std::pair<std::string, Module*>>& all) {
  all.emplace_back(path, &module);
  for (const auto& [name, child] : module.named_children()) list_modules(*child, join(path, name), all);
}

template <class F>
auto listed(const F& list) {
  return list();
}

}  // namespace

std::vector<std::pair<std::string, Tensor>> Module::named_parameters(bool recurse) const {
  return listed([&] { return named(*this, false, recurse); });
}
std::vector<std::pair<std::string, Tensor>> Module::named_buffers(bool recurse) const {
  return listed([&] { return named(*this, true, recurse); });
}
std::vector<Tensor> Module::parameters(bool recurse) const {
  return listed([&] { return seconds(named(*this, false, recurse)); });
}
std::vector<Tensor> Module::buffers(bool recurse) const {
  return listed([&] { return seconds(named(*this, true, recurse)); });
}

std::vector<std::pair<std::string, Module*>> Module::named_children() const {
  return listed([&] {
    std::vector<std::pair<std::string, Module*>> result;
    for (const Entry& entry : entries_)
      if (entry.module) result.emplace_back(entry.name, entry.module);
    return result;
  });
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  return listed([&] {
    std::vector<std::pair<std::string, Module*>> result;
    list_modules(*this, "", result);
    return result;
  });
}

std::vector<Module*> Module::children() const {
  return listed([&] { return seconds(named_children()); });
}
std::vector<Module*> Module::modules() {
  return listed([&] { return seconds(named_modules()); });
}

void Module::apply(const std::function<void(Module&)>& f) {
  for (Module* child : children()) child->apply(f);
  f(*this);
}

// ---- finding by path ------------------------------------------------------------------------------------------------

namespace {

// What the path leads to, nullptr if there is nothing.
ModuleParts::Entry* find_entry(Module& module, std::string_view path) {
  const size_t dot = path.find('.');
  ModuleParts::Entry* const entry = ModuleParts::find(module, path.substr(0, dot));
  if (!entry || dot == std::string_view::npos) return entry;
  return entry->module ? find_entry(*entry->module, path.substr(dot + 1)) : nullptr;
}

}  // namespace

Parameter& Module::get_parameter(std::string_view path) {
  const Entry* entry = find_entry(*this, path);
  REEL_CHECK(entry && entry->tensor && entry->kind == TensorKind::kParameter && entry->tensor->defined(),
             "get_parameter: ", name(), " has no parameter '", path, "'");
  return static_cast<Parameter&>(*entry->tensor);
}

Buffer& Module::get_buffer(std::string_view path) {
  const Entry* entry = find_entry(*this, path);
  REEL_CHECK(entry && entry->tensor && internal::is_buffer(entry->kind) && entry->tensor->defined(),
             "get_buffer: ", name(), " has no buffer '", path, "'");
  return static_cast<Buffer&>(*entry->tensor);
}

Module& Module::get_submodule(std::string_view path) {
  if (path.empty()) return *this;
  const Entry* entry = find_entry(*this, path);
  REEL_CHECK(entry && entry->module, "get_submodule: ", name(), " has no module '", path, "'");
  return *entry->module;
}

const Parameter& Module::get_parameter(std::string_view path) const {
  return const_cast<Module*>(this)->get_parameter(path);
}
const Buffer& Module::get_buffer(std::string_view path) const { return const_cast<Module*>(this)->get_buffer(path); }
const Module& Module::get_submodule(std::string_view path) const {
  return const_cast<Module*>(this)->get_submodule(path);
}

std::string Module::path() const {
  if (!parent_) return {};
  for (const Entry& entry : parent_->entries_)
    if (entry.module == this) return join(parent_->path(), entry.name);
  return {};
}

void Module::rethrow_with_path() const {
  try {
    throw;
  } catch (const Error& error) {
    if (!parent_ || typeid(error) != typeid(Error)) throw;
    throw ErrorInModule(std::string(error.what()) + "\n  in " + label());
  }
}

std::string Module::label() const {
  const std::string place = path();
  return place.empty() ? name() : place + " (" + name() + ")";
}

// ---- changing everything at once ------------------------------------------------------------------------------------

void Module::train(bool on) {
  if (on)
    for (const Module* module : modules())
      REEL_CHECK(!module->fused_, "train: ", module->label(),
                 " was fused for inference and cannot be trained; make the model anew and load its weights");
  for (Module* module : modules()) module->training_ = on;
}

namespace {

// The parameters that are computed for each call and shown outside of calls.
std::vector<internal::Computed*> shown_parameters(Module& module) {
  std::vector<internal::Computed*> result;
  for (const Module* part : module.modules())
    if (internal::Hooks* hooks = ModuleParts::hooks(*part); hooks && !hooks->depth)
      for (internal::Computed& computed : hooks->computed) result.push_back(&computed);
  return result;
}

// Converts first and replaces then, so that running out of memory half-way leaves the module as it was.
template <class Convert>
void replace_tensors(Module& module, const Convert& convert) {
  NoGrad guard;
  std::vector<Tensor> tensors = module.parameters(), converted, gradients, shown;
  for (Tensor& buffer : module.buffers()) tensors.push_back(std::move(buffer));
  for (const Tensor& tensor : tensors) {
    converted.push_back(convert(tensor));
    const Tensor grad = tensor.grad();
    gradients.push_back(grad.defined() ? convert(grad) : grad);
  }
  for (const internal::Computed* computed : shown_parameters(module)) shown.push_back(convert(computed->handle()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (converted[i].is_same(tensors[i])) continue;
    tensors[i].set_grad({});
    set_data(tensors[i], converted[i]);
    if (gradients[i].defined()) tensors[i].set_grad(gradients[i]);
  }
  auto next = shown.begin();
  for (const internal::Computed* computed : shown_parameters(module)) computed->handle() = *next++;
}

}  // namespace

void Module::to(Device device) {
  replace_tensors(*this, [&](const Tensor& tensor) { return tensor.to(device); });
}

void Module::to(DType dtype) {
  REEL_CHECK(is_floating_point(dtype), "Module::to: expected a floating-point type, got ", dtype);
  replace_tensors(*this, [&](const Tensor& tensor) { return tensor.is_floating_point() ? tensor.to(dtype) : tensor; });
}

void Module::requires_grad_(bool value) {
  for (Tensor& parameter : parameters()) parameter.requires_grad_(value);
}

void Module::zero_grad() {
  for (Tensor& parameter : parameters()) parameter.set_grad({});
}

// ---- saving and loading ---------------------------------------------------------------------------------------------

StateDict Module::state_dict() const {
  StateDict dict;
  for_each_tensor(*this, "", true, [&](TensorKind kind, const std::string& path, const Tensor& tensor) {
    if (kind != TensorKind::kTransientBuffer) dict.emplace_back(path, tensor.detach());
  });
  return dict;
}

LoadResult Module::load_state_dict(const StateDict& dict, const LoadOptions& options) {
  std::unordered_map<std::string, Tensor> given;
  std::vector<std::string> names;  // in the dict's order
  for (const auto& [name, tensor] : dict) {
    REEL_CHECK(tensor.defined(), "load_state_dict: '", name, "' is undefined");
    const std::optional<std::string> loaded = loaded_name(name, options);
    if (!loaded) continue;
    REEL_CHECK(given.emplace(*loaded, tensor).second, "load_state_dict: '", *loaded, "' is given twice");
    names.push_back(*loaded);
  }
  for (const auto& [path, module] : named_modules())
    for (size_t i = 0; module->is_folded() && i < names.size(); ++i)
      REEL_CHECK(!names[i].starts_with(path + "."), "load_state_dict: '", names[i], "' is given, but ", path,
                 " was folded into the layer in front of it; load it before fuse_for_inference, or load what the fused "
                 "model has saved");
  LoadResult result;
  std::unordered_set<std::string> expected;
  std::vector<std::pair<std::string, Tensor>> missing;
  std::vector<std::pair<Tensor, Tensor>> copies;
  std::string problems;
  for_each_tensor(*this, "", true, [&](TensorKind kind, const std::string& path, const Tensor& tensor) {
    if (kind == TensorKind::kTransientBuffer) return;
    expected.insert(path);
    const auto found = given.find(path);
    if (found == given.end()) {
      missing.emplace_back(path, tensor);
    } else if (found->second.shape() == tensor.shape()) {
      copies.emplace_back(tensor, found->second);
    } else if (options.ignore_mismatched_sizes) {
      result.mismatched.push_back(path);
    } else {
      problems += "\n  shape of " + path + ": the module has " + tensor.shape().to_string() + ", given is " +
                  found->second.shape().to_string();
    }
  });
  // A shared tensor need be given only once, as safetensors.torch.save_model writes it.
  for (const auto& entry : missing)
    if (std::none_of(copies.begin(), copies.end(), [&](const auto& copy) { return copy.first.is_same(entry.second); }))
      result.missing.push_back(entry.first);
  for (const std::string& name : names)
    if (!expected.contains(name)) result.unexpected.push_back(name);
  constexpr size_t kShown = 8;
  const bool other_shapes = !problems.empty();
  const bool nothing_fits = copies.empty() && result.mismatched.empty() && !missing.empty();
  if (options.strict || nothing_fits) {
    if (!result.unexpected.empty()) problems = "\n  unexpected: " + list(result.unexpected, kShown) + problems;
    if (!result.missing.empty()) problems = "\n  missing: " + list(result.missing, kShown) + problems;
    if (!problems.empty()) problems += advice(result, other_shapes, options.prefix);
  }
  REEL_CHECK(problems.empty(), "load_state_dict: the dict does not fit ", name(), problems);

  NoGrad guard;
  for (auto& [target, source] : copies) target.copy_(source.to(target.device()));
  for (const internal::Computed* computed : shown_parameters(*this)) computed->handle() = computed->shown();
  return result;
}

// ---- printing -------------------------------------------------------------------------------------------------------

std::string Module::name() const {
  const char* mangled = typeid(*this).name();
  const std::unique_ptr<char, void (*)(void*)> type(abi::__cxa_demangle(mangled, nullptr, nullptr, nullptr), std::free);
  return without_namespaces(type ? type.get() : mangled);
}

std::string Module::to_string() const {
  std::string lines;
  for (const auto& [path, child] : named_children()) {
    std::string text = child->to_string();
    for (size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 3))
      text.replace(at, 1, "\n  ");
    lines += "\n  (" + path + "): " + text;
  }
  const std::string extra = extra_repr();
  if (lines.empty()) return name() + "(" + extra + ")";
  return name() + "(" + (extra.empty() ? "" : "\n  " + extra) + lines + "\n)";
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << module.to_string(); }

std::ostream& operator<<(std::ostream& out, const LoadResult& result) {
  const char* gap = "";
  for (const auto& [what, names] : {std::pair("missing", &result.missing), std::pair("unexpected", &result.unexpected),
                                    std::pair("mismatched", &result.mismatched)})
    if (!names->empty()) out << std::exchange(gap, "; ") << what << ": " << list(*names);
  return *gap ? out : out << "all loaded";
}

}  // namespace reel::nn

namespace reel {

std::ostream& operator<<(std::ostream& out, const StateDict& dict) {
  for (const auto& [name, tensor] : dict)
    if (tensor.defined())
      out << name << ": " << tensor.dtype() << ' ' << tensor.shape() << '\n';
    else
      out << name << ": undefined\n";
  return out;
}

}  // namespace reel
