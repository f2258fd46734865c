#include "reel/onnx/save.h"

#include <algorithm>
#include <optional>
#include <set>

#include "lib/nn/check.h"
#include "lib/nn/dry_run.h"
#include "lib/onnx/writer/emitter.h"
#include "lib/onnx/writer/verify.h"

namespace reel::onnx::writer {
namespace {

Run run_once(const internal::Function& run, const std::vector<Tensor>& inputs, const std::string& sizes) {
  NoGrad guard;
  OpTrace trace("onnx::save", inputs);
  const std::vector<Tensor> outputs = run(inputs);
  Run result{sizes, trace.ops(), {}, trace.inputs(), {}, trace.size_reads()};
  for (const Tensor& output : outputs) {
    REEL_CHECK(output.defined(), "onnx::save: output ", result.outputs.size(), " is undefined");
    result.outputs.push_back(trace.value_of("an output", output));
  }
  result.values = trace.values();
  return result;
}

/// Lists the sizes that the program has read and that differ between runs: "batch, dimension 2 of conv1d".
std::string show_size_reads(const Graph& graph, const Dynamic& dynamic) {
  std::set<std::string> reads;
  for (const auto& [value, dim] : graph.runs[0].size_reads) {
    Number sizes;
    for (size_t r = 0; r < graph.runs.size(); ++r) sizes.push_back(graph.value(value, r).tensor.size(dim));
    if (std::all_of(sizes.begin(), sizes.end(), [&](int64_t n) { return n == sizes[0]; })) continue;
    const int op = graph.value(value).op;
    std::string name = dynamic.find(sizes);
    if (name.empty() && op >= 0)
      name = "dimension " + std::to_string(dim) + " of " + graph.ops()[static_cast<size_t>(op)].name;
    reads.insert(std::move(name));
  }
  std::string text;
  for (const std::string& read : reads) text += (text.empty() ? "" : ", ") + read;
  return text;
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

void internal::save(nn::Module* model, const Function& run, TensorList inputs, const std::filesystem::path& file,
                    const SaveOptions& options) {
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
    if (!options.allow_unregistered) check_registered(*model, run, dynamic.inputs(inputs, dynamic.sizes(0)));
  }
  std::optional<nn::internal::DryRun> dry_run;
  if (model) dry_run.emplace(*model);
  const Trace trace = [&](const std::vector<Tensor>& examples, const std::string& sizes) {
    return run_once(run, examples, sizes);
  };
  std::vector<Run> runs;
  std::string traced;
  for (size_t r = 0; r < dynamic.runs(); ++r) {
    const std::vector<int64_t> sizes = dynamic.sizes(dynamic.count() ? r : 0);
    const std::string text = dynamic.show(sizes);
    try {
      runs.push_back(trace(dynamic.inputs(inputs, sizes), text));
    } catch (const OutOfMemoryError&) {
      throw;
    } catch (const Error& error) {
      if (r == 0 || text.empty()) throw;
      throw Error("onnx::save: at " + text + ": " + error.what());
    }
    traced += (r ? "; " : "") + text;
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
  if (dynamic.count()) {
    out.graph_doc = "Traced at " + traced;
    const std::string verified = verify(out, graph, dynamic, inputs, trace);
    out.graph_doc += verified.empty() ? "." : ". Compared with the program at " + verified + ".";
    if (const std::string reads = show_size_reads(graph, dynamic); !reads.empty())
      out.graph_doc += " The program has read sizes, by which it may have decided something: " + reads + ".";
  }
  out.write(file, options.external_above);
}

}  // namespace reel::onnx
