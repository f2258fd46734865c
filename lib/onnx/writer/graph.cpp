#include "lib/onnx/writer/graph.h"

#include <cstring>

#include "lib/io/elements.h"
#include "lib/tensor/tensor_impl.h"

namespace reel::onnx::writer {
namespace {

bool same_elements(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape() || a.dtype() != b.dtype()) return false;
  const Tensor from = a.contiguous(), other = b.contiguous();
  if (view_of(from).data == view_of(other).data) return true;
  return std::memcmp(view_of(from).data, view_of(other).data, static_cast<size_t>(io::byte_count(from))) == 0;
}

std::string at(const Run& run) { return run.sizes.empty() ? "in another run" : "at " + run.sizes; }

void check_same_ops(const Run& first, const Run& other) {
  constexpr const char* kDiffers = "onnx::save: the model's ops differ between two runs: ";
  const size_t common = std::min(first.ops.size(), other.ops.size());
  for (size_t i = 0; i < common; ++i) {
    const TracedOp &a = first.ops[i], &b = other.ops[i];
    REEL_CHECK(a.name == b.name, kDiffers, "number ", i, " is ", a.name, ", and ", b.name, " ", at(other));
    REEL_CHECK(a.inputs == b.inputs && a.outputs == b.outputs, kDiffers, "number ", i, ", ", a.name,
               ", is given other values ", at(other));
    for (size_t k = 0; k < a.outputs.size(); ++k) {
      if (a.outputs[k] < 0) continue;
      const Tensor &x = first.values[static_cast<size_t>(a.outputs[k])].tensor,
                   &y = other.values[static_cast<size_t>(b.outputs[k])].tensor;
      REEL_CHECK(x.dtype() == y.dtype() && x.dim() == y.dim(), kDiffers, "number ", i, ", ", a.name, ", gives ",
                 x.dtype(), " ", x.shape(), ", and ", y.dtype(), " ", y.shape(), " ", at(other));
    }
  }
  REEL_CHECK(first.ops.size() == other.ops.size(), kDiffers, first.ops.size(), " of them, and ", other.ops.size(), " ",
             at(other), "; the first that both do not have is ",
             (first.ops.size() > common ? first : other).ops[common].name);
  REEL_CHECK(first.values.size() == other.values.size() && first.outputs == other.outputs, kDiffers,
             "they have other results ", at(other));
}

}  // namespace

Graph::Graph(std::vector<Run> all) : runs(std::move(all)) {
  for (size_t r = 1; r < runs.size(); ++r) check_same_ops(runs[0], runs[r]);
  for (size_t i = 0; i < runs[0].values.size(); ++i) {
    bool same = !runs[0].values[i].derived;
    for (size_t r = 1; same && r < runs.size(); ++r)
      same = same_elements(runs[0].values[i].tensor, runs[r].values[i].tensor);
    fixed.push_back(same);
  }
}

std::string Graph::show(const std::vector<int64_t>& numbers) const {
  std::string text;
  for (size_t r = 0; r < numbers.size(); ++r)
    if (r == 0 || numbers[r] != numbers[0])
      text += (r ? ", " : "") + std::to_string(numbers[r]) + " " + (r ? at(runs[r]) : "at " + runs[0].sizes);
  return text;
}

}  // namespace reel::onnx::writer
