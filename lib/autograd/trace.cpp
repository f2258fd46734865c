#include "lib/autograd/trace.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include <algorithm>
#include <cstdlib>
#include <locale>
#include <map>
#include <sstream>

#include "lib/autograd/accumulate_grad.h"
#include "lib/autograd/tape.h"

namespace reel {

// ---- anomaly mode ---------------------------------------------------------------------------------------------------

constinit thread_local bool anomaly = false;
DetectAnomaly::DetectAnomaly(bool enabled) : before_(std::exchange(anomaly, enabled)) {}
DetectAnomaly::~DetectAnomaly() { anomaly = before_; }

std::vector<void*> stack_frames() {
  void* frames[64];
  const int count = backtrace(frames, 64);
  return std::vector<void*>(frames + std::min(count, 2), frames + count);  // not this function and its caller
}
std::string describe_stack(const std::vector<void*>& frames) {
  detail::TextStream out;
  for (void* frame : frames) {
    Dl_info where{};
    if (!dladdr(frame, &where)) continue;
    out << "  at ";
    if (where.dli_sname) {
      int status = 0;
      char* name = abi::__cxa_demangle(where.dli_sname, nullptr, nullptr, &status);
      out << (status == 0 ? name : where.dli_sname);
      std::free(name);
    } else {
      out << where.dli_fname << "+0x" << std::hex << static_cast<char*>(frame) - static_cast<char*>(where.dli_fbase)
          << std::dec;
    }
    out << '\n';
  }
  return std::move(out).str();
}

// ---- printing the graph ---------------------------------------------------------------------------------------------

std::vector<Node*> nodes_behind(std::span<const Tensor> roots) {
  std::map<uint64_t, Node*, std::greater<>> found;
  std::vector<Node*> stack;
  auto visit = [&](Node* node) {
    if (node && found.emplace(node->sequence, node).second) stack.push_back(node);
  };
  for (const Tensor& root : roots)
    if (needs_grad(root)) visit(TensorImpl::of(root)->node);
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    if (!node->released)
      for (uint32_t i = 0; i < node->num_inputs; ++i) visit(node->edges()[i].node);
  }
  std::vector<Node*> nodes;
  for (const auto& [sequence, node] : found) nodes.push_back(node);
  return nodes;
}

namespace {

std::string label(const NodeOutput& output) {
  return std::string(name_of(output.metadata.dtype)) + " " + output.metadata.shape.to_string();
}

std::vector<Node*> nodes_of(const Tensor& root) {
  REEL_CHECK(needs_grad(root), "tape: the tensor has no history");
  return nodes_behind({&root, 1});
}

}  // namespace

std::string tape_to_string(const Tensor& root) {
  detail::TextStream out;
  for (Node* node : nodes_of(root)) {
    out << '#' << node->sequence << ' ' << node->name;
    for (uint32_t i = 0; i < node->num_outputs; ++i) out << (i ? ", " : " ") << label(node->outputs()[i]);
    const char* separator = " <- ";
    for (uint32_t i = 0; i < node->num_inputs && !node->released; ++i) {
      const Edge& edge = node->edges()[i];
      if (!edge) continue;
      out << std::exchange(separator, ", ");
      if (edge.node)
        out << '#' << edge.node->sequence << ' ' << edge.node->name;
      else
        out << "leaf " << name_of(edge.leaf->view.dtype) << ' ' << edge.leaf->view.shape;
    }
    out << (node->released ? " (freed)\n" : "\n");
  }
  return std::move(out).str();
}

std::string tape_to_dot(const Tensor& root) {
  detail::TextStream out;
  out << "digraph tape {\n  rankdir=BT;\n  node [shape=box, fontname=monospace];\n";
  for (Node* node : nodes_of(root)) {
    out << "  n" << node->sequence << " [label=\"" << node->name << "\\n" << label(node->outputs()[0]) << "\"];\n";
    for (uint32_t i = 0; i < node->num_inputs && !node->released; ++i) {
      const Edge& edge = node->edges()[i];
      if (edge.node) {
        out << "  n" << edge.node->sequence << " -> n" << node->sequence << ";\n";
      } else if (edge.leaf) {
        const uint32_t id = accumulate_grad_of(edge.leaf).id();
        out << "  leaf" << id << " [label=\"leaf\\n"
            << name_of(edge.leaf->view.dtype) << ' ' << edge.leaf->view.shape
            << "\", style=filled, fillcolor=lightgray];\n  leaf" << id << " -> n" << node->sequence << ";\n";
      }
    }
  }
  out << "}\n";
  return std::move(out).str();
}

}  // namespace reel
