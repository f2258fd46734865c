#include "lib/onnx/writer/emitter.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "lib/io/elements.h"
#include "lib/ops/op_info.h"
#include "lib/tensor/tensor_impl.h"

namespace reel::onnx::writer {

Emit emit_of(std::string_view op) {
  for (const EmitTable* table :
       {&pointwise_ops(), &shape_ops(), &reduction_ops(), &dense_ops(), &index_ops(), &recurrent_ops()})
    if (const auto found = table->find(op); found != table->end()) return found->second;
  return nullptr;
}

Emitter::Emitter(const Graph& graph, const std::vector<std::pair<std::string, Tensor>>& named, Names inputs,
                 std::vector<std::vector<std::string>> dynamic)
    : graph_(graph), dynamic_(std::move(dynamic)), names_(graph.fixed.size()), named_(named) {
  for (const auto& [name, tensor] : named) used_[name] = 1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int value = graph.inputs()[i];
    names_[static_cast<size_t>(value)] = unique(inputs[i]);
    const Tensor& tensor = graph.value(value).tensor;
    Port port{names_[static_cast<size_t>(value)], tensor.dtype(), {}};
    for (int d = 0; d < tensor.dim(); ++d) {
      const std::string& name = dynamic_[i][static_cast<size_t>(d)];
      if (name.empty())
        port.dims.emplace_back(tensor.size(d));
      else
        port.dims.emplace_back(name);
    }
    file_.inputs.push_back(std::move(port));
  }
}

namespace {
const char* why_not(std::string_view op) {
  const auto known = std::find_if(kOps.begin(), kOps.end(), [&](const OpInfo& info) { return info.name == op; });
  return known != kOps.end() && known->not_exported ? known->not_exported
                                                    : "it has no counterpart in ONNX that is exported";
}
}  // namespace

void Emitter::emit_all() {
  // Backwards: which values are read.
  std::set<int> needed(graph_.outputs().begin(), graph_.outputs().end());
  std::vector<bool> wanted(graph_.ops().size());
  const auto fixed = [&](int value) { return graph_.fixed[static_cast<size_t>(value)]; };
  for (size_t i = graph_.ops().size(); i-- > 0;) {
    const TracedOp& op = graph_.ops()[i];
    wanted[i] = std::any_of(op.outputs.begin(), op.outputs.end(),
                            [&](int value) { return value >= 0 && needed.contains(value) && !fixed(value); });
    if (wanted[i]) needed.insert(op.inputs.begin(), op.inputs.end());
  }
  for (size_t i = 0; i < graph_.ops().size(); ++i) {
    if (!wanted[i]) continue;
    op_ = &graph_.ops()[i];
    op_number_ = i;
    const Emit emit = emit_of(op_->name);
    if (!emit) fail(why_not(op_->name));
    emit(*this);
  }
  op_ = nullptr;
}

ModelFile Emitter::finish(const Names& outputs) && {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int value = graph_.outputs()[i];
    const Tensor& tensor = graph_.value(value).tensor;
    file_.nodes.push_back({"Identity", {name_of(value, "an output")}, {outputs[i]}, {}});
    Port port{outputs[i], tensor.dtype(), {}};
    for (int d = 0; d < tensor.dim(); ++d) {
      Number sizes;
      for (size_t r = 0; r < graph_.runs.size(); ++r) sizes.push_back(graph_.value(value, r).tensor.size(d));
      port.dims.emplace_back(is_constant(sizes) ? sizes[0] : int64_t{-1});
      if (is_constant(sizes)) continue;
      for (size_t k = 0; k < dynamic_.size(); ++k)
        for (size_t e = 0; e < dynamic_[k].size(); ++e) {
          bool same = !dynamic_[k][e].empty();
          for (size_t r = 0; same && r < graph_.runs.size(); ++r)
            same = graph_.value(graph_.inputs()[k], r).tensor.size(static_cast<int64_t>(e)) == sizes[r];
          if (same) port.dims.back() = dynamic_[k][e];
        }
    }
    file_.outputs.push_back(std::move(port));
  }
  return std::move(file_);
}

Name Emitter::unique(const std::string& wish) {
  const int times = used_[wish]++;
  return times ? unique(wish + "_" + std::to_string(times)) : wish;
}

// ---- the op that is written -----------------------------------------------------------------------------------------

void Emitter::fail(const std::string& why) const { detail::fail("onnx::save: ", op(), ": ", why); }

const Tensor& Emitter::tensor(size_t input) const { return graph_.value(op_->inputs[input]).tensor; }
const Tensor& Emitter::result(size_t output) const { return graph_.value(op_->outputs[output]).tensor; }
Name Emitter::in(size_t input) { return has(input) ? name_of(op_->inputs[input], op()) : Name(); }

Number Emitter::size(size_t input, int64_t dim) const {
  Number sizes;
  for (size_t r = 0; r < graph_.runs.size(); ++r) sizes.push_back(graph_.value(op_->inputs[input], r).tensor.size(dim));
  return sizes;
}
Number Emitter::result_size(int64_t dim, size_t output) const {
  Number sizes;
  for (size_t r = 0; r < graph_.runs.size(); ++r)
    sizes.push_back(graph_.value(op_->outputs[output], r).tensor.size(dim));
  return sizes;
}
std::vector<Number> Emitter::result_sizes(size_t output) const {
  std::vector<Number> all;
  for (int d = 0; d < result(output).dim(); ++d) all.push_back(result_size(d, output));
  return all;
}

const TraceAttribute& Emitter::attribute(const char* name, size_t run) const {
  const auto& all = graph_.runs[run].ops[op_number_].attributes;
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& a) { return std::string_view(a.name) == name; });
  if (found == all.end()) fail(std::string("no attribute ") + name);
  return *found;
}
Number Emitter::number(const char* name) const {
  Number values;
  for (size_t r = 0; r < graph_.runs.size(); ++r) values.push_back(std::get<int64_t>(attribute(name, r).value));
  return values;
}
int64_t Emitter::integer(const char* name) const {
  const Number values = number(name);
  if (!is_constant(values)) fail(std::string(name) + " is " + graph_.show(values) + "; it must not depend on sizes");
  return values[0];
}
double Emitter::real(const char* name) const {
  const double value = std::get<double>(attribute(name, 0).value);
  for (size_t r = 1; r < graph_.runs.size(); ++r)
    if (const double other = std::get<double>(attribute(name, r).value); other != value && value == value)
      fail(std::string(name) + " is " + std::to_string(value) + " and, at " + graph_.runs[r].sizes + ", " +
           std::to_string(other) + "; it must not depend on sizes");
  return value;
}
std::vector<int64_t> Emitter::list(const char* name, size_t run) const {
  return std::get<std::vector<int64_t>>(attribute(name, run).value);
}
std::vector<int64_t> Emitter::list(const char* name) const {
  const auto value = list(name, 0);
  for (size_t r = 1; r < graph_.runs.size(); ++r) {
    const auto other = list(name, r);
    for (size_t i = 0; i < std::min(value.size(), other.size()); ++i)
      if (value[i] != other[i])
        fail(std::string(name) + " of dimension " + std::to_string(i) + " is " + graph_.show({value[i], other[i]}) +
             "; it must not depend on sizes");
    if (value.size() != other.size()) fail(std::string(name) + " has another length at " + graph_.runs[r].sizes);
  }
  return value;
}

void Emitter::set(Name name, size_t output) {
  if (op_->outputs[output] >= 0) names_[static_cast<size_t>(op_->outputs[output])] = std::move(name);
}

// ---- nodes and constants --------------------------------------------------------------------------------------------

Names Emitter::nodes(const char* type, Names inputs, size_t outputs, Attributes attributes) {
  while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
  Names results;
  for (size_t i = 0; i < outputs; ++i) results.push_back(unique(op_ ? op_->name : "size"));
  file_.nodes.push_back({type, std::move(inputs), results, std::move(attributes)});
  return results;
}

Name Emitter::constant(const Tensor& tensor) {
  for (auto& [name, known] : named_)
    if (known.dtype() == tensor.dtype() && view_of(known).data == view_of(tensor).data &&
        known.shape() == tensor.shape() && known.strides() == tensor.strides()) {
      const auto& all = file_.initializers;
      const Name& key = name;
      if (std::none_of(all.begin(), all.end(), [&](const auto& other) { return other.first == key; }))
        file_.initializers.emplace_back(key, tensor);
      return key;
    }
  const Tensor dense = tensor.contiguous();
  constexpr int64_t kSmall = 4096;  // what is compared with others
  if (io::byte_count(dense) > kSmall) {
    const Name name = unique("constant");
    file_.initializers.emplace_back(name, dense);
    return name;
  }
  std::string key = std::string(reel::name_of(dense.dtype())) + dense.shape().to_string();
  key.append(static_cast<const char*>(io::bytes_of(dense)), static_cast<size_t>(io::byte_count(dense)));
  Name& name = constants_[key];
  if (name.empty()) {
    name = unique("constant");
    file_.initializers.emplace_back(name, dense);
  }
  return name;
}
Name Emitter::scalar(double value, DType dtype) { return constant(full({}, value, {.dtype = dtype, .device = kCPU})); }
Name Emitter::ints(const std::vector<int64_t>& list) {
  return constant(reel::tensor(list, {static_cast<int64_t>(list.size())}, {.dtype = kInt64, .device = kCPU}));
}
Name Emitter::cast(const Name& x, DType from, DType to) {
  return from == to ? x : node("Cast", {x}, {{"to", element_type(to)}});
}
Name Emitter::expanded(const Name& x, const std::vector<Number>& shape) {
  return node("Expand", {x, sizes(shape, "shape")});
}

Name Emitter::name_of(int value, const std::string& reader) {
  Name& name = names_[static_cast<size_t>(value)];
  if (name.empty()) name = fold_constant(value, reader);
  return name;
}

Name Emitter::fold_constant(int value, const std::string& reader) {
  const OpTrace::Value& first = graph_.value(value);
  const Tensor& tensor = first.tensor;
  if (TensorImpl::of(tensor)->storage->version.load() != first.version)
    detail::fail("onnx::save: ", reader, ": reads a constant that is changed in place after it");
  if (graph_.fixed[static_cast<size_t>(value)]) return constant(tensor);
  // One number, and sizes that are found elsewhere.
  const auto where = "onnx::save: " + reader + ": a constant that the program made, not an op, ";
  std::vector<Number> shape;
  double filling = 0;
  Number whole;
  bool one = true;
  for (size_t r = 0; r < graph_.runs.size(); ++r) {
    const Tensor now = graph_.value(value, r).tensor.to(kFloat64).contiguous();
    const double* const elements = now.data<double>();
    if (!now.numel()) continue;
    if (r == 0) filling = elements[0];
    one = one && std::all_of(elements, elements + now.numel(), [&](double e) { return e == filling; });
    whole.push_back(static_cast<int64_t>(elements[0]));
    if (static_cast<double>(whole.back()) != elements[0] || now.numel() != 1) whole.clear();
  }
  for (int d = 0; d < tensor.dim(); ++d) {
    Number sizes;
    for (size_t r = 0; r < graph_.runs.size(); ++r) sizes.push_back(graph_.value(value, r).tensor.size(d));
    shape.push_back(std::move(sizes));
  }
  if (one) return expanded(scalar(filling, tensor.dtype()), shape);
  if (whole.size() == graph_.runs.size()) {  // a number, made of a size
    const Name number = resolve(whole);
    if (number.empty())
      detail::fail(where, "is ", graph_.show(whole), ": no multiple of a size of an input, nor linear in one");
    const Name typed = cast(number, kInt64, tensor.dtype());
    return tensor.dim() ? node("Reshape", {typed, ints(std::vector<int64_t>(static_cast<size_t>(tensor.dim()), 1))})
                        : squeezed(typed, {0});
  }
  for (int d = 0; d < tensor.dim(); ++d)
    if (const Number& sizes = shape[static_cast<size_t>(d)]; !is_constant(sizes))
      detail::fail(where, "has size ", graph_.show(sizes), " in dimension ", d, ", and more than one number in it");
  detail::fail(where, "a ", reel::name_of(tensor.dtype()), " ", tensor.shape(),
               ", has other elements in another run: it is random, or depends on the sizes or on an earlier run");
}

// ---- sizes ----------------------------------------------------------------------------------------------------------

bool Emitter::is_constant(const Number& number) const {
  return std::all_of(number.begin(), number.end(), [&](int64_t n) { return n == number[0]; });
}

Emitter::Source Emitter::source(int value, int dim) const {
  Number sizes;
  for (size_t r = 0; r < graph_.runs.size(); ++r) sizes.push_back(graph_.value(value, r).tensor.size(dim));
  return {value, dim, std::move(sizes)};
}

/// Returns the dynamic dimensions, each of which is read from the first input that has it.
std::vector<Emitter::Source> Emitter::named_sources() const {
  std::vector<Source> all;
  for (size_t i = 0; i < dynamic_.size(); ++i)
    for (size_t d = 0; d < dynamic_[i].size(); ++d) {
      const std::string& name = dynamic_[i][d];
      const auto has_name = [&](const Source& other) { return other.name == name; };
      if (name.empty() || std::any_of(all.begin(), all.end(), has_name)) continue;
      all.push_back(source(graph_.inputs()[i], static_cast<int>(d)));
      all.back().name = name;
    }
  return all;
}

/// Returns the dimensions of the op's own inputs whose sizes differ between runs.
std::vector<Emitter::Source> Emitter::own_sources() const {
  std::vector<Source> all;
  if (!op_) return all;
  for (const int value : op_->inputs) {
    if (value < 0 || graph_.fixed[static_cast<size_t>(value)] || !graph_.value(value).derived) continue;
    for (int d = 0; d < graph_.value(value).tensor.dim(); ++d)
      if (Source one = source(value, d); !is_constant(one.sizes)) all.push_back(std::move(one));
  }
  return all;
}

Name Emitter::size_of(const Source& source) {
  Name& name = sizes_[{source.value, source.dim}];
  if (name.empty())
    name = node("Gather", {node("Shape", {name_of(source.value, op_ ? op() : "a size")}), ints({source.dim})},
                {{"axis", 0}});
  return name;
}

Name Emitter::written(const Formula& formula) {
  Name result = size_of(*formula.sizes[0]);
  for (size_t i = 1; i < formula.sizes.size(); ++i) result = node("Mul", {result, size_of(*formula.sizes[i])});
  if (formula.factor != 1) result = node("Mul", {result, ints({formula.factor})});
  if (formula.divisor != 1) result = node("Div", {result, ints({formula.divisor})});
  return formula.term ? node("Add", {result, ints({formula.term})}) : result;
}

std::string Emitter::show(const Formula& formula) {
  std::string text = std::to_string(formula.factor);
  for (const Source* size : formula.sizes) text += " " + size->name;
  if (formula.divisor != 1) text += " / " + std::to_string(formula.divisor);
  return formula.term ? text + " + " + std::to_string(formula.term) : text;
}

Name Emitter::resolve(const Number& n) {
  if (is_constant(n)) return ints({n[0]});
  constexpr int64_t kLarge = int64_t{1} << 40;  // no size
  if (std::any_of(n.begin(), n.end(), [](int64_t i) { return i < -kLarge || i > kLarge; })) return {};
  std::vector<Formula> found;
  // Appends to `found` if n is a multiple of a product of sizes plus a constant, or a fraction of it, in all runs.
  const auto try_product = [&](const Number& product, const std::vector<const Source*>& sizes) {
    size_t k = 1;
    while (k < n.size() && product[k] == product[0]) ++k;
    if (k == n.size()) return;
    const int64_t by = n[k] - n[0], step = product[k] - product[0];
    Formula f{sizes, by / step, 1, 0};
    if (by % step == 0) {
      f.term = n[0] - f.factor * product[0];
    } else {
      const int64_t common = std::gcd(by, step);
      f.factor = by / common, f.divisor = step / common;
      if (f.divisor < 0) f.factor = -f.factor, f.divisor = -f.divisor;
    }
    for (size_t r = 0; r < n.size(); ++r)
      if ((n[r] - f.term) * f.divisor != product[r] * f.factor) return;
    found.push_back(std::move(f));
  };
  const auto try_products = [&](const std::vector<Source>& all, size_t factors) {
    std::vector<std::pair<Number, std::vector<const Source*>>> products{{Number(n.size(), 1), {}}};
    for (size_t count = 0; count < factors; ++count) {
      decltype(products) longer;
      for (const auto& [product, sizes] : products)
        for (const Source& s : all) {
          if (!sizes.empty() && sizes.back() > &s) continue;  // in another order
          Number next = product;
          for (size_t r = 0; r < n.size(); ++r) next[r] *= s.sizes[r];
          std::vector<const Source*> with = sizes;
          with.push_back(&s);
          try_product(next, with);
          longer.emplace_back(std::move(next), std::move(with));
        }
      products = std::move(longer);
    }
  };
  const std::vector<Source> named = named_sources(), own = own_sources();
  try_products(named, 3);
  if (found.size() > 1)
    detail::fail("onnx::save: ", op_ ? op() : "a size", ": ", graph_.show(n), " may be ", show(found[0]), " or ",
                 show(found[1]), ": give the dynamic dimensions other sizes");
  if (found.size() == 1 && found[0].sizes.size() == 1) return written(found[0]);
  // One size that is rounded is preferred to a product of several.
  for (const Source& s : own)
    if (s.sizes == n) return size_of(s);
  const std::vector<Formula> of_named = std::exchange(found, {});
  try_products(own, 1);
  if (!found.empty()) return written(found[0]);
  if (!of_named.empty()) return written(of_named[0]);
  std::vector<Source> all = own;
  all.insert(all.end(), named.begin(), named.end());
  try_products(all, 3);
  return found.empty() ? Name() : written(found[0]);
}

Name Emitter::sizes(const std::vector<Number>& numbers, const char* what) {
  if (std::all_of(numbers.begin(), numbers.end(), [&](const Number& n) { return is_constant(n); })) {
    std::vector<int64_t> list;
    for (const Number& n : numbers) list.push_back(n[0]);
    return ints(list);
  }
  Names parts;
  std::vector<int64_t> constants;
  const auto flush = [&] {
    if (!constants.empty()) parts.push_back(ints(std::exchange(constants, {})));
  };
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (is_constant(numbers[i])) {
      constants.push_back(numbers[i][0]);
      continue;
    }
    flush();
    parts.push_back(resolve(numbers[i]));
    if (parts.back().empty())
      fail(std::string(what) + ", dimension " + std::to_string(i) + ", is " + graph_.show(numbers[i]) +
           ": no multiple of a size of an input, nor linear in one, nor a product of sizes");
  }
  flush();
  return parts.size() == 1 ? parts[0] : node("Concat", parts, {{"axis", 0}});
}

}  // namespace reel::onnx::writer
