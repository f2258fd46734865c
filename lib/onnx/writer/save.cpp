#include "reel/onnx/save.h"

#include <algorithm>
#include <optional>
#include <set>

#include "lib/nn/check.h"
#include "lib/nn/dry_run.h"
#include "lib/onnx/writer/emitter.h"
#include "reel/random.h"

namespace reel::onnx::writer {
namespace {

/// The dimensions that are dynamic, by name.
class Dynamic {
 public:
  Dynamic(const std::vector<Tensor>& inputs, const std::vector<DynamicDim>& dims) {
    for (const Tensor& input : inputs) names_.emplace_back(static_cast<size_t>(input.dim()));
    for (const DynamicDim& d : dims) {
      REEL_CHECK(d.input >= 0 && static_cast<size_t>(d.input) < inputs.size(), "onnx::save: dynamic: input ", d.input,
                 ", of ", inputs.size());
      const Tensor& input = inputs[static_cast<size_t>(d.input)];
      const int64_t dim = d.dim < 0 ? d.dim + input.dim() : d.dim;
      REEL_CHECK(dim >= 0 && dim < input.dim(), "onnx::save: dynamic: dimension ", d.dim, " of input ", d.input,
                 ", whose shape is ", input.shape());
      REEL_CHECK(!d.name.empty(), "onnx::save: dynamic: dimension ", d.dim, " of input ", d.input, " has no name");
      const int64_t size = input.size(dim);
      REEL_CHECK(size > 0, "onnx::save: dynamic: ", d.name, " is 0 in the example");
      names_[static_cast<size_t>(d.input)][static_cast<size_t>(dim)] = d.name;
      const auto known = std::find_if(sizes_.begin(), sizes_.end(), [&](const auto& s) { return s.first == d.name; });
      if (known == sizes_.end())
        sizes_.emplace_back(d.name, size);
      else
        REEL_CHECK(known->second == size, "onnx::save: dynamic: ", d.name, " is ", known->second, " and ", size);
    }
  }

  bool any() const { return !sizes_.empty(); }
  const std::vector<std::vector<std::string>>& names() const { return names_; }

  /// Sizes that no formula but the right one has in all runs. Of dimensions that are equal in the example each gets
  /// sizes of its own.
  int64_t size(const std::string& name, size_t run) const {
    int64_t place = 0, first = 0;
    for (const auto& [other, size] : sizes_) {
      if (other == name) {
        first = size;
        break;
      }
      ++place;
    }
    return run == 0 ? first : run == 1 ? first + 1 + place : 2 * first + 3 + 2 * place;
  }
  std::string show(size_t run) const {
    std::string text;
    for (const auto& [name, first] : sizes_)
      text += (text.empty() ? "" : ", ") + name + " = " + std::to_string(size(name, run));
    return text;
  }

  /// The examples in the sizes of a run: their elements repeated. Of their own in any case.
  std::vector<Tensor> inputs(const std::vector<Tensor>& examples, size_t run) const {
    NoGrad guard;
    std::vector<Tensor> all;
    for (size_t i = 0; i < examples.size(); ++i) {
      Tensor x = examples[i].detach().clone();
      for (int d = 0; d < x.dim(); ++d)
        if (const std::string& name = names_[i][static_cast<size_t>(d)]; !name.empty())
          x = index_select(x, d, remainder(arange(size(name, run), {.device = kCPU}), x.size(d)));
      all.push_back(x.contiguous());
    }
    return all;
  }

 private:
  std::vector<std::vector<std::string>> names_;         // of each dimension of each input
  std::vector<std::pair<std::string, int64_t>> sizes_;  // of each name
};

Run run_once(const internal::Function& run, const std::vector<Tensor>& inputs, const std::string& sizes) {
  NoGrad guard;
  OpTrace trace("onnx::save", inputs);
  const std::vector<Tensor> outputs = run(inputs);
  Run result{sizes, trace.ops(), {}, trace.inputs(), {}};
  for (const Tensor& output : outputs) {
    REEL_CHECK(output.defined(), "onnx::save: output ", result.outputs.size(), " is undefined");
    result.outputs.push_back(trace.value_of("an output", output));
  }
  result.values = trace.values();
  return result;
}

std::vector<std::string> names_of(const char* what, const std::vector<std::string>& given, size_t count) {
  REEL_CHECK(given.empty() || given.size() == count, "onnx::save: ", given.size(), " names for ", count, " ", what,
             "s");
  std::vector<std::string> names = given;
  for (size_t i = names.size(); i < count; ++i) names.push_back(std::string(what) + "_" + std::to_string(i));
  return names;
}

void check_distinct(const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
  std::set<std::string> seen;
  for (const auto* names : {&inputs, &outputs})
    for (const std::string& name : *names)
      REEL_CHECK(!name.empty() && seen.insert(name).second, "onnx::save: the name '", name, "' is ",
                 name.empty() ? "empty" : "given twice");
}

void check_registered(nn::Module& model, const internal::Function& run, const std::vector<Tensor>& inputs) {
  const nn::Check found = nn::internal::check(model, inputs, [&] { return run(inputs); });
  REEL_CHECK(found.unregistered.empty(), "onnx::save: ", nn::Check{.unregistered = found.unregistered, .unused = {}},
             "declare it as a member with *this, or set allow_unregistered");
}

}  // namespace
}  // namespace reel::onnx::writer

namespace reel::onnx {

void internal::save(nn::Module* model, const Function& run, const std::vector<Tensor>& inputs,
                    const std::filesystem::path& file, const SaveOptions& options) {
  using namespace writer;  // NOLINT(google-build-using-namespace)
  for (size_t i = 0; i < inputs.size(); ++i) {
    REEL_CHECK(inputs[i].defined(), "onnx::save: input ", i, " is undefined");
    REEL_CHECK(inputs[i].device() == kCPU, "onnx::save: input ", i, " is on ", inputs[i].device(),
               "; models are exported on the CPU");
  }
  const Dynamic dynamic(inputs, options.dynamic);
  std::vector<std::pair<std::string, Tensor>> named;
  if (model) {
    for (const auto& [path, tensor] : model->state_dict()) {
      REEL_CHECK(tensor.device() == kCPU, "onnx::save: ", path, " is on ", tensor.device(),
                 "; models are exported on the CPU");
      named.emplace_back(path, tensor);
    }
    if (!options.allow_unregistered) check_registered(*model, run, dynamic.inputs(inputs, 0));
  }
  std::optional<nn::internal::DryRun> dry_run;
  if (model) dry_run.emplace(*model);
  std::vector<Run> runs;
  const size_t count = dynamic.any() ? 3 : 2;
  for (size_t r = 0; r < count; ++r) {
    const std::string sizes = dynamic.any() ? dynamic.show(r) : "";
    const std::vector<Tensor> examples = dynamic.inputs(inputs, dynamic.any() ? r : 0);
    try {
      runs.push_back(run_once(run, examples, sizes));
    } catch (const Error& error) {
      if (r == 0 || !dynamic.any()) throw;
      throw Error("onnx::save: at " + sizes + ": " + error.what());
    }
  }
  const Graph graph(std::move(runs));
  const std::vector<std::string> input_names = names_of("input", options.inputs, inputs.size()),
                                 output_names = names_of("output", options.outputs, graph.outputs().size());
  check_distinct(input_names, output_names);
  Emitter emitter(graph, named, input_names, dynamic.names());
  emitter.emit_all();
  ModelFile out = std::move(emitter).finish(output_names);
  out.name = model ? model->name() : "function";
  out.doc = options.doc;
  out.write(file, options.external_above);
}

}  // namespace reel::onnx
