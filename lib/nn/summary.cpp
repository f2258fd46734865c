#include "reel/nn/summary.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <ostream>

#include "lib/nn/check.h"

namespace reel::nn {
namespace {

int64_t bytes_of(const Tensor& tensor) { return tensor.numel() * size_of(tensor.dtype()); }

void note_call(SummaryRow& row, const std::vector<Tensor>& outputs) {
  ++row.calls;
  row.outputs.clear();
  for (const Tensor& output : outputs) {
    if (!output.defined()) continue;
    row.outputs.push_back(output.shape());
    row.output_bytes += bytes_of(output);
  }
}

std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string readable_bytes(int64_t bytes) {
  constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1000 && unit < 4; ++unit) value /= 1000;
  return detail::concat(std::setprecision(3), value, " ", units[unit]);
}

std::string shapes(const SummaryRow& row) {
  if (!row.calls) return "-";
  std::string text;
  for (const Shape& shape : row.outputs) text += (text.empty() ? "" : ", ") + shape.to_string();
  return row.calls > 1 ? text + " x" + std::to_string(row.calls) : text;
}

}  // namespace

namespace internal {

Summary summarize(Module& model, const std::vector<Tensor>& inputs, const std::function<std::vector<Tensor>()>& run) {
  Summary summary;
  std::vector<Tensor> seen;
  const auto named = model.named_modules();
  for (const auto& [path, module] : named) {
    SummaryRow row{.path = path, .type = module->name(), .outputs = {}};
    row.depth = path.empty() ? 0 : 1 + static_cast<int>(std::count(path.begin(), path.end(), '.'));
    for (const Tensor& parameter : module->parameters(false)) {
      if (std::any_of(seen.begin(), seen.end(), [&](const Tensor& other) { return other.is_same(parameter); }))
        continue;
      seen.push_back(parameter);
      row.parameters += parameter.numel();
      row.trainable += parameter.requires_grad() ? parameter.numel() : 0;
      row.parameter_bytes += bytes_of(parameter);
    }
    summary.parameters += row.parameters;
    summary.trainable += row.trainable;
    summary.parameter_bytes += row.parameter_bytes;
    summary.rows.push_back(std::move(row));
  }
  for (const Tensor& buffer : model.buffers()) summary.buffer_bytes += bytes_of(buffer);
  {
    DryRun dry_run(model);
    EnableGrad guard;
    const CallRecorder calls(dry_run, model);
    for (size_t i = 1; i < named.size(); ++i)
      dry_run.after(*named[i].second,
                    [row = &summary.rows[i]](Module&, const std::vector<Tensor>&, std::vector<Tensor>& outputs) {
                      note_call(*row, outputs);
                    });
    const std::vector<Tensor> outputs = run();
    note_call(summary.rows[0], outputs);
    summary.unregistered = check_graph(model, inputs, outputs, calls).unregistered;
  }
  // Not those of modules with parts that were called, which are counted there.
  const std::vector<SummaryRow>& rows = summary.rows;
  for (auto row = rows.begin(); row != rows.end(); ++row) {
    const auto end =
        std::find_if(row + 1, rows.end(), [&](const SummaryRow& next) { return next.depth <= row->depth; });
    if (std::none_of(row + 1, end, [](const SummaryRow& part) { return part.calls > 0; }))
      summary.output_bytes += row->output_bytes;
  }
  return summary;
}

}  // namespace internal

std::string Summary::to_string() const {
  std::vector<std::array<std::string, 3>> cells{{"module", "output", "parameters"}};
  for (const SummaryRow& row : rows) {
    const std::string name = row.path.substr(row.path.rfind('.') + 1);
    std::string parameters = row.parameters ? with_commas(row.parameters) : "-";
    if (row.trainable < row.parameters)
      parameters += row.trainable ? " (" + with_commas(row.parameters - row.trainable) + " frozen)" : " (frozen)";
    cells.push_back(
        {std::string(2 * static_cast<size_t>(row.depth), ' ') + (name.empty() ? "" : name + ": ") + row.type,
         shapes(row), parameters});
  }
  std::array<size_t, 3> width{};
  for (const auto& line : cells)
    for (size_t i = 0; i < 3; ++i) width[i] = std::max(width[i], line[i].size());
  detail::TextStream out;
  for (const auto& line : cells)
    out << std::left << std::setw(static_cast<int>(width[0]) + 2) << line[0]
        << std::setw(static_cast<int>(width[1]) + 2) << line[1] << line[2] << "\n";
  out << "parameters: " << with_commas(parameters) << " (" << with_commas(trainable) << " trainable), "
      << readable_bytes(parameter_bytes) << "\n"
      << "buffers: " << readable_bytes(buffer_bytes) << ", outputs: " << readable_bytes(output_bytes) << "\n";
  if (!unregistered.empty()) out << Check{.unregistered = unregistered, .unused = {}};
  return std::move(out).str();
}

std::ostream& operator<<(std::ostream& out, const Summary& summary) { return out << summary.to_string(); }

}  // namespace reel::nn
