#include "reel/nn/check.h"

#include <algorithm>
#include <ostream>
#include <set>
#include <utility>

#include "lib/autograd/tape.h"
#include "lib/autograd/trace.h"
#include "lib/nn/check.h"
#include "lib/nn/dry_run.h"

namespace reel::nn {
namespace internal {

Check check_graph(Module& model, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
                  const CallRecorder& calls) {
  Check found;
  std::set<const TensorImpl*> known, used;
  for (const auto& [path, parameter] : model.named_parameters()) known.insert(TensorImpl::of(parameter));
  for (const Tensor& input : inputs) known.insert(TensorImpl::of(input));
  const auto use = [&](const TensorImpl* leaf, const std::string& user) {
    if (!used.insert(leaf).second || known.contains(leaf)) return;
    found.unregistered.push_back(std::string(name_of(leaf->view.dtype)) + " " + leaf->view.shape.to_string() + user);
  };
  auto nodes = nodes_behind(outputs);
  std::reverse(nodes.begin(), nodes.end());  // in the order in which they were recorded
  for (Node* node : nodes)
    for (uint32_t i = 0; i < node->num_inputs; ++i)
      if (const TensorImpl* const leaf = node->edges()[i].leaf) {
        const Module* const caller = calls.caller_of(node->sequence);
        const std::string path = caller ? caller->path() : "";
        use(leaf, std::string(", used by ") + node->name + " in " + (path.empty() ? "" : path + " ") +
                      (path.empty() ? model.name() : "(" + caller->name() + ")"));
      }
  for (const Tensor& output : outputs)
    if (needs_grad(output) && !TensorImpl::of(output)->node) use(TensorImpl::of(output), ", a result");
  for (const auto& [path, parameter] : model.named_parameters())
    if (parameter.requires_grad() && !used.contains(TensorImpl::of(parameter))) found.unused.push_back(path);
  return found;
}

Check check(Module& model, const std::vector<Tensor>& inputs, const std::function<std::vector<Tensor>()>& run) {
  DryRun dry_run(model);
  EnableGrad guard;
  const CallRecorder calls(dry_run, model);
  const std::vector<Tensor> outputs = run();
  return check_graph(model, inputs, outputs, calls);
}

}  // namespace internal

std::string Check::to_string() const {
  std::string text;
  for (const std::string& tensor : unregistered) text += "used but not registered: " + tensor + "\n";
  for (const std::string& path : unused) text += "registered but not used: " + path + "\n";
  return good() ? "all parameters are used, and all that is used is registered\n" : text;
}

std::ostream& operator<<(std::ostream& out, const Check& check) { return out << check.to_string(); }

}  // namespace reel::nn
