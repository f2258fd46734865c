#include "reel/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>

#include "reel/autograd.h"

namespace reel::nn {
namespace {

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

bool contains(const std::vector<Tensor>& tensors, const Tensor& tensor) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const Tensor& other) { return other.is_same(tensor); });
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

}  // namespace

Module::~Module() {
  if (parent_) {
    auto& siblings = parent_->entries_;
    // Members die in reverse order, so the search from the back finds at once.
    const auto me = std::find_if(siblings.rbegin(), siblings.rend(), [&](const Entry& e) { return e.module == this; });
    siblings.erase(std::next(me).base());
  }
  for (const Entry& entry : entries_)
    if (entry.module) entry.module->parent_ = nullptr;
}

// ---- registration ---------------------------------------------------------------------------------------------------

void Module::add(Entry entry) {
  REEL_CHECK(!entry.name.empty(), "Module: a name is empty");
  REEL_CHECK(entry.name.find('.') == std::string::npos, "Module: the name '", entry.name, "' has a dot");
  for (const Entry& other : entries_)
    REEL_CHECK(other.name != entry.name, "Module: the name '", entry.name, "' is used already");
  entries_.push_back(std::move(entry));
}

Tensor Module::register_parameter(std::string name, Tensor tensor) {
  if (!tensor.defined()) return tensor;
  REEL_CHECK(tensor.is_floating_point(), "register_parameter: '", name, "' is ", tensor.dtype(),
             ", only floating-point tensors can be trained");
  REEL_CHECK(tensor.is_leaf(), "register_parameter: '", name, "' was computed from other tensors, detach() it first");
  add({Entry::kParameter, std::move(name), tensor});
  return tensor.requires_grad_();
}

Tensor Module::register_buffer(std::string name, Tensor tensor) {
  if (tensor.defined()) add({Entry::kBuffer, std::move(name), tensor});
  return tensor;
}

void Module::register_module(std::string name, Module& child) {
  REEL_CHECK(child.parent_ == nullptr, "register_module: '", name, "' is part of another module already");
  for (const Module* m = this; m; m = m->parent_)
    REEL_CHECK(m != &child, "register_module: '", name, "' would be part of itself");
  add({Entry::kModule, std::move(name), Tensor(), &child});
  child.parent_ = this;
}

// ---- listing --------------------------------------------------------------------------------------------------------

template <class Visit>
void Module::for_each_tensor(const std::string& prefix, const Visit& visit) const {
  for (const Entry& entry : entries_) {
    const std::string path = join(prefix, entry.name);
    if (entry.module)
      entry.module->for_each_tensor(path, visit);
    else
      visit(entry.kind, path, entry.tensor);
  }
}

std::vector<std::pair<std::string, Tensor>> Module::named(Entry::Kind kind) const {
  std::vector<std::pair<std::string, Tensor>> result;
  std::vector<Tensor> seen;
  for_each_tensor("", [&](Entry::Kind k, const std::string& path, const Tensor& tensor) {
    if (k != kind || contains(seen, tensor)) return;
    seen.push_back(tensor);
    result.emplace_back(path, tensor);
  });
  return result;
}

std::vector<std::pair<std::string, Tensor>> Module::named_parameters() const { return named(Entry::kParameter); }
std::vector<std::pair<std::string, Tensor>> Module::named_buffers() const { return named(Entry::kBuffer); }

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> result;
  for (auto& [path, tensor] : named_parameters()) result.push_back(std::move(tensor));
  return result;
}

std::vector<Tensor> Module::buffers() const {
  std::vector<Tensor> result;
  for (auto& [path, tensor] : named_buffers()) result.push_back(std::move(tensor));
  return result;
}

std::vector<std::pair<std::string, Module*>> Module::children() const {
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

// ---- changing everything at once ------------------------------------------------------------------------------------

void Module::train(bool on) {
  for (const auto& [path, module] : named_modules()) module->training_ = on;
}

// Converts first and replaces then, so that running out of memory half-way leaves the module as it was.
template <class Convert>
void Module::replace_tensors(const Convert& convert) {
  NoGrad guard;
  std::vector<Tensor> tensors = parameters(), converted, gradients;
  for (Tensor& buffer : buffers()) tensors.push_back(std::move(buffer));
  for (const Tensor& tensor : tensors) {
    converted.push_back(convert(tensor));
    const Tensor grad = tensor.grad();
    gradients.push_back(grad.defined() ? convert(grad) : grad);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (converted[i].is_same(tensors[i])) continue;
    tensors[i].set_grad({});
    detail::set_data(tensors[i], converted[i]);
    if (gradients[i].defined()) tensors[i].set_grad(gradients[i]);
  }
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
  for_each_tensor("", [&](Entry::Kind, const std::string& path, const Tensor& tensor) {
    dict.emplace_back(path, tensor.detach());
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
  std::vector<std::pair<Tensor, Tensor>> copies;
  std::string problems;
  for_each_tensor("", [&](Entry::Kind, const std::string& path, const Tensor& tensor) {
    expected.insert(path);
    const auto found = given.find(path);
    if (found == given.end()) {
      result.missing.push_back(path);
    } else if (!(found->second.shape() == tensor.shape())) {
      problems += "\n  shape of " + path + ": the module has " + tensor.shape().to_string() + ", given is " +
                  found->second.shape().to_string();
    } else {
      copies.emplace_back(tensor, found->second);
    }
  });
  for (const auto& [name, tensor] : dict)
    if (!expected.contains(name)) result.unexpected.push_back(name);
  if (options.strict && !result.unexpected.empty()) problems = "\n  unexpected: " + list(result.unexpected) + problems;
  if (options.strict && !result.missing.empty()) problems = "\n  missing: " + list(result.missing) + problems;
  REEL_CHECK(problems.empty(), "load_state_dict: the dict does not fit ", name(), problems);

  NoGrad guard;
  for (auto& [target, source] : copies) target.copy_(source.to(target.device()));
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
  for (const auto& [path, child] : children()) {
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
