#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ostream>

#include "lib/autograd/tape.h"
#include "lib/tensor/tensor_impl.h"

// Tensors as PyTorch prints them: one number format for all elements, columns aligned, long dimensions abbreviated.
namespace reel {
namespace {

constexpr int kEdge = 3, kLineWidth = 80, kIndent = 7;  // of "tensor("
constexpr int64_t kMaxElements = 1000;

/// The elements to be shown, in row-major order. `abbreviate`: only kEdge at either end of a dimension.
struct ShownElements {
  const View& view;
  bool abbreviate;

  bool cut(int dim) const { return abbreviate && view.shape[dim] > 2 * kEdge; }
  /// f(i) for the shown positions of a dimension; gap() where some are left out.
  template <class F, class Gap>
  void along(int dim, const F& f, const Gap& gap) const {
    const int64_t size = view.shape[dim];
    for (int64_t i = 0; i < (cut(dim) ? kEdge : size); ++i) f(i);
    if (!cut(dim)) return;
    gap();
    for (int64_t i = size - kEdge; i < size; ++i) f(i);
  }
  /// f(offset) for every shown element.
  template <class F>
  void elements(const F& f, int dim = 0, int64_t offset = 0) const {
    if (dim == view.shape.size()) return f(offset);
    along(
        dim, [&](int64_t i) { elements(f, dim + 1, offset + i * view.strides[dim]); }, [] {});
  }
};

/// One format for all the numbers: "1.", "1.5000" or "1.5000e+00", whichever shows the kinds and magnitudes of all.
struct FloatFormat {
  bool whole = true, scientific = false;
  explicit FloatFormat(const std::vector<double>& values) {
    double least = INFINITY, most = 0;
    for (const double value : values) {
      if (!std::isfinite(value) || value == 0) continue;
      whole = whole && value == std::floor(value);
      least = std::min(least, std::abs(value)), most = std::max(most, std::abs(value));
    }
    if (most > 0) scientific = most / least > 1000 || most > 1e8 || (!whole && least < 1e-4);
  }
  std::string operator()(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    if (scientific) return fmt::format("{:.4e}", value);
    return whole ? fmt::format("{:.0f}.", value) : fmt::format("{:.4f}", value);
  }
};

double float_at(const View& view, int64_t offset) {
  switch (view.dtype) {
    case kFloat16: return static_cast<float>(view.as<Float16>()[offset]);
    case kBFloat16: return static_cast<float>(view.as<BFloat16>()[offset]);
    case kFloat32: return view.as<float>()[offset];
    default: return view.as<double>()[offset];
  }
}
std::string integer_at(const View& view, int64_t offset) {
  switch (view.dtype) {
    case kBool: return view.as<bool>()[offset] ? "True" : "False";
    case kUInt8: return fmt::format("{}", view.as<uint8_t>()[offset]);
    case kInt32: return fmt::format("{}", view.as<int32_t>()[offset]);
    default: return fmt::format("{}", view.as<int64_t>()[offset]);
  }
}

/// The shown elements as texts of one width.
std::vector<std::string> texts(const ShownElements& shown) {
  const View& view = shown.view;
  std::vector<std::string> all;
  if (is_floating_point(view.dtype)) {
    std::vector<double> values;
    shown.elements([&](int64_t offset) { values.push_back(float_at(view, offset)); });
    const FloatFormat format(values);
    for (const double value : values) all.push_back(format(value));
  } else {
    shown.elements([&](int64_t offset) { all.push_back(integer_at(view, offset)); });
  }
  size_t width = 0;
  for (const std::string& text : all) width = std::max(width, text.size());
  for (std::string& text : all) text.insert(0, width - text.size(), ' ');
  return all;
}

/// Dimension dim and those within, each text in order; `indent` is where this bracket stands.
std::string brackets(const ShownElements& shown, int dim, int indent, const std::string*& next) {
  const int rank = shown.view.shape.size();
  std::string out = "[";
  if (dim == rank - 1) {
    const int64_t per_line = std::max<int64_t>(1, (kLineWidth - indent) / (static_cast<int64_t>(next->size()) + 2));
    int64_t count = 0;
    const auto put = [&](const std::string& text) {
      if (count) out += count % per_line ? ", " : ",\n" + std::string(indent + 1, ' ');
      out += text;
      ++count;
    };
    shown.along(
        dim, [&](int64_t) { put(*next++); }, [&] { put(" ..."); });
  } else {
    const std::string separator = "," + std::string(rank - dim - 1, '\n') + std::string(indent + 1, ' ');
    const char* before = "";
    const auto put = [&](const std::string& text) { out += std::exchange(before, separator.c_str()) + text; };
    shown.along(
        dim, [&](int64_t) { put(brackets(shown, dim + 1, indent + 1, next)); }, [&] { put("..."); });
  }
  return out + "]";
}

std::string elements_of(const View& view) {
  if (view.numel == 0) return "[]";
  const ShownElements shown{view, view.numel > kMaxElements};
  const std::vector<std::string> all = texts(shown);
  const std::string* next = all.data();
  return view.shape.empty() ? all[0] : brackets(shown, 0, kIndent, next);
}

}  // namespace

std::string Tensor::to_string() const {
  if (!defined()) return "tensor(undefined)";
  const Tensor host = no_grad([&] { return to(kCPU); });
  const View& view = view_of(host);
  std::string out = "tensor(" + elements_of(view);

  std::vector<std::string> notes;
  if (device() != kCPU) notes.push_back(fmt::format("device='cuda:{}'", device().index));
  if (view.numel == 0 && view.shape.size() != 1) {
    std::string sizes;
    for (const int64_t size : view.shape) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
    notes.push_back("size=(" + sizes + ")");
  }
  const bool plain = view.dtype == kFloat32 || (view.numel && (view.dtype == kInt64 || view.dtype == kBool));
  if (!plain) notes.push_back(fmt::format("dtype={}", name_of(view.dtype)));
  if (needs_grad(*this)) {
    const Node* node = TensorImpl::of(*this)->node;
    notes.push_back(node ? fmt::format("grad_fn=<{}>", node->name) : "requires_grad=True");
  }
  size_t line = out.size() - (out.rfind('\n') == std::string::npos ? 0 : out.rfind('\n') + 1);
  for (const std::string& note : notes) {
    const bool wrap = line + note.size() + 2 > kLineWidth;
    out += wrap ? ",\n" + std::string(kIndent, ' ') + note : ", " + note;
    line = wrap ? kIndent + note.size() : line + note.size() + 2;
  }
  return out + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.to_string(); }

}  // namespace reel
