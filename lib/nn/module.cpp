#include "reel/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "lib/core/tensor_impl.h"
#include "lib/nn/hooks.h"
#include "reel/autograd.h"

namespace reel::nn {
namespace {

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

bool contains(const std::vector<Tensor>& tensors, const Tensor& tensor) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const Tensor& other) { return other.is_same(tensor); });
}

// The second halves of pairs.
template <class Second>
std::vector<Second> seconds(const std::vector<std::pair<std::string, Second>>& pairs) {
  std::vector<Second> result;
  for (const auto& [path, second] : pairs) result.push_back(second);
  return result;
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
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
    if (entry.module) entry.module->parent_ = nullptr;
}

// What refers to a module is its children, its parent's entry and its hooks; what refers into it is its
// parametrizations.
Module::Module(Module&& other)
    : entries_(std::move(other.entries_)),
      parent_(std::exchange(other.parent_, nullptr)),
      hooks_(std::move(other.hooks_)),
      training_(other.training_) {
  if (hooks_) {
    hooks_->module = this;
    for (internal::Computed& computed : hooks_->computed) {
      if (!computed.inside) continue;
      const auto offset = reinterpret_cast<char*>(computed.member) - reinterpret_cast<char*>(&other);
      computed.member = reinterpret_cast<Tensor*>(reinterpret_cast<char*>(this) + offset);
    }
  }
  for (const Entry& entry : entries_)
    if (entry.module) entry.module->parent_ = this;
  if (parent_)
    for (Entry& entry : parent_->entries_)
      if (entry.module == &other) entry.module = this;
}

// ---- registration ---------------------------------------------------------------------------------------------------

void Module::check_name(const std::string& name) const {
  REEL_CHECK(!name.empty(), "Module: a name is empty");
  REEL_CHECK(name.find('.') == std::string::npos, "Module: the name '", name, "' has a dot");
  for (const Entry& other : entries_) REEL_CHECK(other.name != name, "Module: the name '", name, "' is used already");
}

void Module::add(Entry entry) {
  check_name(entry.name);
  entries_.push_back(std::move(entry));
}

namespace {
void check_parameter(const char* op, const std::string& name, const Tensor& tensor) {
  REEL_CHECK(tensor.is_floating_point(), op, ": '", name, "' is ", tensor.dtype(),
             ", only floating-point tensors can be trained");
  REEL_CHECK(tensor.is_leaf(), op, ": '", name, "' was computed from other tensors, detach() it first");
}
}  // namespace

Tensor Module::register_parameter(std::string name, Tensor tensor) {
  if (!tensor.defined()) return tensor;
  check_parameter("register_parameter", name, tensor);
  add({Entry::kParameter, std::move(name), tensor});
  return tensor.requires_grad_();
}

Tensor Module::register_buffer(std::string name, Tensor tensor, bool persistent) {
  if (tensor.defined()) add({persistent ? Entry::kBuffer : Entry::kTransientBuffer, std::move(name), tensor});
  return tensor;
}

void Module::check_part(const std::string& name, const Module& child) const {
  REEL_CHECK(child.parent_ == nullptr, "register_module: '", name, "' is part of another module already");
  for (const Module* m = this; m; m = m->parent_)
    REEL_CHECK(m != &child, "register_module: '", name, "' would be part of itself");
  check_name(name);
}

void Module::register_module(std::string name, Module& child) {
  check_part(name, child);
  add({Entry::kModule, std::move(name), Tensor(), &child});
  child.parent_ = this;
}

void Module::unregister_module(Module& child) {
  // Members die in reverse order, so the search from the back finds at once.
  const auto at = std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& e) { return e.module == &child; });
  REEL_CHECK(at != entries_.rend(), "unregister_module: it is not a part of this module");
  entries_.erase(std::next(at).base());
  child.parent_ = nullptr;
}

Module::Entry& Module::entry_of(const char* op, const Tensor& member, bool parameter) {
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.kind != Entry::kModule && (e.kind == Entry::kParameter) == parameter && e.tensor.is_same(member);
  });
  REEL_CHECK(entry != entries_.end(), op, ": the tensor is no ", parameter ? "parameter" : "buffer", " of this ",
             name());
  REEL_CHECK(place_of(member) != Place::kElsewhere, op, ": a copy of the handle to '", entry->name,
             "' was given, not the member of this ", name());
  return *entry;
}

void Module::replace_parameter(Tensor& member, Tensor tensor) {
  Entry& entry = entry_of("replace_parameter", member, true);
  REEL_CHECK(tensor.defined(), "replace_parameter: '", entry.name, "' by an undefined tensor");
  check_parameter("replace_parameter", entry.name, tensor);
  entry.tensor = member = tensor.requires_grad_();
}

void Module::replace_buffer(Tensor& member, Tensor tensor) {
  Entry& entry = entry_of("replace_buffer", member, false);
  REEL_CHECK(tensor.defined(), "replace_buffer: '", entry.name, "' by an undefined tensor");
  entry.tensor = member = tensor;
}

// ---- listing --------------------------------------------------------------------------------------------------------

template <class Visit>
void Module::for_each_tensor(const std::string& prefix, bool recurse, const Visit& visit) const {
  for (const Entry& entry : entries_) {
    if (entry.kind != Entry::kModule)
      visit(entry.kind, join(prefix, entry.name), entry.tensor);
    else if (recurse)
      entry.module->for_each_tensor(join(prefix, entry.name), true, visit);
  }
}

std::vector<std::pair<std::string, Tensor>> Module::named(bool buffers, bool recurse) const {
  std::vector<std::pair<std::string, Tensor>> result;
  std::vector<Tensor> seen;
  for_each_tensor("", recurse, [&](Entry::Kind kind, const std::string& path, const Tensor& tensor) {
    if ((kind != Entry::kParameter) != buffers || contains(seen, tensor)) return;
    seen.push_back(tensor);
    result.emplace_back(path, tensor);
  });
  return result;
}

std::vector<std::pair<std::string, Tensor>> Module::named_parameters(bool recurse) const {
  return named(false, recurse);
}
std::vector<std::pair<std::string, Tensor>> Module::named_buffers(bool recurse) const { return named(true, recurse); }
std::vector<Tensor> Module::parameters(bool recurse) const { return seconds(named(false, recurse)); }
std::vector<Tensor> Module::buffers(bool recurse) const { return seconds(named(true, recurse)); }

std::vector<std::pair<std::string, Module*>> Module::named_children() const {
  std::vector<std::pair<std::string, Module*>> result;
  for (const Entry& entry : entries_)
    if (entry.module) result.emplace_back(entry.name, entry.module);
  return result;
}

void Module::list_modules(const std::string& path, std::vector<std::pair<std::string, Module*>>& all) {
  all.emplace_back(path, this);
  for (const Entry& entry : entries_)
    if (entry.module) entry.module->list_modules(join(path, entry.name), all);
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> result;
  list_modules("", result);
  return result;
}

std::vector<Module*> Module::children() const { return seconds(named_children()); }
std::vector<Module*> Module::modules() { return seconds(named_modules()); }

void Module::apply(const std::function<void(Module&)>& f) {
  for (Module* child : children()) child->apply(f);
  f(*this);
}

// ---- finding by path ------------------------------------------------------------------------------------------------

Module::Entry* Module::find_entry(std::string_view path) const {
  const size_t dot = path.find('.');
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == path.substr(0, dot); });
  if (entry == entries_.end()) return nullptr;
  if (dot == std::string_view::npos) return const_cast<Entry*>(&*entry);
  return entry->module ? entry->module->find_entry(path.substr(dot + 1)) : nullptr;
}

Tensor Module::get_parameter(std::string_view path) const {
  const Entry* entry = find_entry(path);
  REEL_CHECK(entry && entry->kind == Entry::kParameter, "get_parameter: ", name(), " has no parameter '", path, "'");
  return entry->tensor;
}

Tensor Module::get_buffer(std::string_view path) const {
  const Entry* entry = find_entry(path);
  REEL_CHECK(entry && (entry->kind == Entry::kBuffer || entry->kind == Entry::kTransientBuffer), "get_buffer: ", name(),
             " has no buffer '", path, "'");
  return entry->tensor;
}

Module& Module::get_submodule(std::string_view path) {
  if (path.empty()) return *this;
  const Entry* entry = find_entry(path);
  REEL_CHECK(entry && entry->module, "get_submodule: ", name(), " has no module '", path, "'");
  return *entry->module;
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
  for (Module* module : modules()) module->training_ = on;
}

// The parameters that are computed for each call and shown outside of calls.
std::vector<internal::Computed*> Module::shown_parameters() {
  std::vector<internal::Computed*> result;
  for (const Module* module : modules())
    if (module->hooks_ && !module->hooks_->depth)
      for (internal::Computed& computed : module->hooks_->computed) result.push_back(&computed);
  return result;
}

// Converts first and replaces then, so that running out of memory half-way leaves the module as it was.
template <class Convert>
void Module::replace_tensors(const Convert& convert) {
  NoGrad guard;
  std::vector<Tensor> tensors = parameters(), converted, gradients, shown;
  for (Tensor& buffer : buffers()) tensors.push_back(std::move(buffer));
  for (const Tensor& tensor : tensors) {
    converted.push_back(convert(tensor));
    const Tensor grad = tensor.grad();
    gradients.push_back(grad.defined() ? convert(grad) : grad);
  }
  for (const internal::Computed* computed : shown_parameters()) shown.push_back(convert(*computed->member));
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (converted[i].is_same(tensors[i])) continue;
    tensors[i].set_grad({});
    set_data(tensors[i], converted[i]);
    if (gradients[i].defined()) tensors[i].set_grad(gradients[i]);
  }
  auto next = shown.begin();
  for (internal::Computed* computed : shown_parameters()) *computed->member = *next++;
}

void Module::to(Device device) {
  replace_tensors([&](const Tensor& tensor) { return tensor.to(device); });
}

void Module::to(DType dtype) {
  REEL_CHECK(is_floating_point(dtype), "Module::to: expected a floating-point type, got ", dtype);
  replace_tensors([&](const Tensor& tensor) { return tensor.is_floating_point() ? tensor.to(dtype) : tensor; });
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
  for_each_tensor("", true, [&](Entry::Kind kind, const std::string& path, const Tensor& tensor) {
    if (kind != Entry::kTransientBuffer) dict.emplace_back(path, tensor.detach());
  });
  return dict;
}

LoadResult Module::load_state_dict(const StateDict& dict, LoadOptions options) {
  std::unordered_map<std::string, Tensor> given;
  for (const auto& [name, tensor] : dict) {
    REEL_CHECK(tensor.defined(), "load_state_dict: '", name, "' is undefined");
    REEL_CHECK(given.emplace(name, tensor).second, "load_state_dict: '", name, "' is given twice");
  }
  LoadResult result;
  std::unordered_set<std::string> expected;
  std::vector<std::pair<std::string, Tensor>> missing;
  std::vector<std::pair<Tensor, Tensor>> copies;
  std::string problems;
  for_each_tensor("", true, [&](Entry::Kind kind, const std::string& path, const Tensor& tensor) {
    if (kind == Entry::kTransientBuffer) return;
    expected.insert(path);
    const auto found = given.find(path);
    if (found == given.end()) {
      missing.emplace_back(path, tensor);
    } else if (!(found->second.shape() == tensor.shape())) {
      problems += "\n  shape of " + path + ": the module has " + tensor.shape().to_string() + ", given is " +
                  found->second.shape().to_string();
    } else {
      copies.emplace_back(tensor, found->second);
    }
  });
  // A shared tensor need be given only once, as safetensors.torch.save_model writes it.
  for (const auto& entry : missing)
    if (std::none_of(copies.begin(), copies.end(), [&](const auto& copy) { return copy.first.is_same(entry.second); }))
      result.missing.push_back(entry.first);
  for (const auto& [name, tensor] : dict)
    if (!expected.contains(name)) result.unexpected.push_back(name);
  if (options.strict && !result.unexpected.empty()) problems = "\n  unexpected: " + list(result.unexpected) + problems;
  if (options.strict && !result.missing.empty()) problems = "\n  missing: " + list(result.missing) + problems;
  REEL_CHECK(problems.empty(), "load_state_dict: the dict does not fit ", name(), problems);

  NoGrad guard;
  for (auto& [target, source] : copies) target.copy_(source.to(target.device()));
  for (internal::Computed* computed : shown_parameters()) *computed->member = computed->shown();
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

}  // namespace reel::nn
