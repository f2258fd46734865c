// Compares an exported graph, run as onnx::load would run it, with the program.
#include "lib/onnx/writer/verify.h"

#include <algorithm>
#include <map>
#include <optional>

#include "lib/onnx/graph.h"
#include "reel/autograd.h"
#include "reel/ops.h"

namespace reel::onnx::writer {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

Attribute attribute_of(const NodeAttribute& from) {
  Attribute a;
  a.name = from.name;
  std::visit(Overloaded{[&](int64_t number) { a.type = attribute::kIntType, a.integer = number; },
                        [&](float number) { a.type = attribute::kFloatType, a.number = number; },
                        [&](const std::string& text) { a.type = attribute::kStringType, a.text = text; },
                        [&](const std::vector<int64_t>& list) { a.type = attribute::kIntsType, a.integers = list; },
                        [&](const std::vector<std::string>& list) {
                          a.type = attribute::kStringsType;
                          for (const std::string& text : list) a.text += (a.text.empty() ? "" : " ") + text;
                        }},
             from.value);
  return a;
}

/// An Interpreter runs the graph of a file that is not written yet.
class Interpreter {
 public:
  explicit Interpreter(const ModelFile& file) {
    graph_.opset = kOpset;
    const auto port = [&](const Port& from) {
      onnx::Port to;
      to.name = from.name, to.value = value_of(from.name);
      return to;
    };
    for (const Port& input : file.inputs) graph_.inputs.push_back(port(input));
    for (const auto& [name, tensor] : file.initializers)
      graph_.initializers.push_back({.name = name, .value = value_of(name), .tensor = tensor});
    for (const Node& from : file.nodes) {
      onnx::Node& node = graph_.nodes.emplace_back();
      node.op = from.type;
      for (const std::string& input : from.inputs) node.inputs.push_back(input.empty() ? -1 : value_of(input));
      for (const std::string& output : from.outputs) node.outputs.push_back(value_of(output));
      for (const NodeAttribute& attribute : from.attributes) node.attributes.push_back(attribute_of(attribute));
    }
    for (const Port& output : file.outputs) graph_.outputs.push_back(port(output));
    prune(graph_);
    link(graph_);
  }

  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const {
    NoGrad guard;
    std::vector<Tensor> values(graph_.values.size());
    for (size_t i = 0; i < inputs.size(); ++i) values[graph_.inputs[i].value] = inputs[i];
    for (const Initializer& initializer : graph_.initializers) values[initializer.value] = initializer.tensor;
    run_nodes(graph_, values, false, kCPU, "the exported graph");
    std::vector<Tensor> outputs;
    for (const onnx::Port& port : graph_.outputs) outputs.push_back(values[port.value]);
    return outputs;
  }

 private:
  int value_of(const std::string& name) {
    const auto [at, is_new] = numbers_.emplace(name, static_cast<int>(graph_.values.size()));
    if (is_new) graph_.values.push_back(name);
    return at->second;
  }
  onnx::Graph graph_;
  std::map<std::string, int> numbers_;
};

/// Returns whether two tensors are equal but for rounding. A few integers may differ, which may be positions of
/// extremes.
bool agree(const Tensor& expected, const Tensor& got) {
  if (expected.shape() != got.shape() || expected.dtype() != got.dtype()) return false;
  if (!expected.numel()) return true;
  const Tensor x = expected.to(kFloat64), y = got.to(kFloat64);
  if (!expected.is_floating_point()) return mean((x == y).to(kFloat64)).item<double>() >= 0.99;
  const double tolerance = is_half(expected.dtype()) ? 0.1 : 0.01;
  const double largest = amax(nan_to_num(abs(x), 0., 0., 0.)).item<double>();
  return allclose(y, x, tolerance, tolerance * largest / 10, true);
}

int64_t elements(const Run& run) {
  int64_t sum = 0;
  for (const OpTrace::Value& value : run.values) sum += value.tensor.numel();
  return sum;
}

}  // namespace

std::string verify(const ModelFile& file, const Graph& graph, const Dynamic& dynamic, TensorList examples,
                   const Trace& trace) {
  // These sizes are primes, so that they are multiples of nothing. Larger ones are left out of models that would need
  // more than kElements elements for all of their values if these grew with the square of the size.
  constexpr int64_t kSizes[] = {67, 131, 263, 521, 1031}, kElements = int64_t{1} << 25;
  std::optional<Interpreter> exported;
  std::string tried;
  const auto run = [&](const std::vector<int64_t>& sizes) -> std::optional<Run> {
    try {
      return trace(dynamic.inputs(examples, sizes), dynamic.show(sizes));
    } catch (const std::exception&) {
      return {};  // The model does not take them, and so need not the file.
    }
  };
  const auto compare = [&](const Run& model, const std::vector<int64_t>& sizes) {
    const std::string text = dynamic.show(sizes);
    if (!exported) exported.emplace(file);
    std::vector<Tensor> outputs;
    try {
      outputs = (*exported)(dynamic.inputs(examples, sizes));
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const Error& error) {
      detail::fail("onnx::save: at ", text, " the exported graph fails, and the model does not: ", error.what());
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& expected = model.values[static_cast<size_t>(model.outputs[i])].tensor;
      REEL_CHECK(agree(expected, outputs[i]), "onnx::save: at ", text, " output ", i, " is a ", expected.dtype(), " ",
                 expected.shape(), ", and a ", outputs[i].dtype(), " ", outputs[i].shape(),
                 " of other elements in the exported graph: what the model does depends on its sizes in a way that "
                 "the traced ones do not show. Give the dimension sizes of your own if such ones do not occur");
    }
    tried += (tried.empty() ? "" : "; ") + text;
  };
  for (size_t name = 0; name < dynamic.count(); ++name) {
    if (!dynamic.is_free(name)) continue;
    std::vector<int64_t> sizes = dynamic.sizes(0);
    const int64_t first = sizes[name];
    const auto is_traced = [&](int64_t size) {
      for (size_t r = 0; r < dynamic.runs(); ++r)
        if (dynamic.sizes(r)[name] == size) return true;
      return false;
    };
    for (const int64_t small : {1, 2, 3, 4}) {
      sizes[name] = small;
      if (is_traced(small)) continue;
      if (const auto now = run(sizes)) compare(*now, sizes);
    }
    double known = static_cast<double>(elements(graph.runs[0])), at = static_cast<double>(first);
    const auto is_affordable = [&](int64_t size) {
      const double ratio = static_cast<double>(size) / at;
      return known * ratio * ratio <= static_cast<double>(kElements);
    };
    // The largest size that is known to be affordable comes first, and then larger ones, as more is known.
    std::optional<Run> last;
    size_t end = std::size(kSizes);
    for (size_t begin = 0, i = end; i-- > begin;) {
      if (kSizes[i] <= first || !is_affordable(kSizes[i])) continue;
      std::vector<int64_t> larger = sizes;
      larger[name] = kSizes[i];
      std::optional<Run> now = run(larger);
      if (!now) {
        end = i;
        continue;
      }
      known = static_cast<double>(elements(*now)), at = static_cast<double>(kSizes[i]);
      last = std::move(now), sizes = larger;
      begin = i + 1, i = end;
    }
    if (last) compare(*last, sizes);
  }
  return tried;
}

}  // namespace reel::onnx::writer
