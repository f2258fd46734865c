#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <protozero/pbf_writer.hpp>
#include <span>

#include "lib/base/per_thread.h"
#include "lib/data/utf8.h"
#include "lib/io/file.h"
#include "lib/tensorboard/event_file.h"
#include "lib/tensorboard/graph.h"
#include "lib/tensorboard/histogram.h"
#include "lib/tensorboard/png.h"
#include "lib/tensorboard/schema.h"
#include "reel/autograd.h"
#include "reel/io/npy.h"
#include "reel/ops.h"
#include "reel/tensorboard.h"

namespace reel::tensorboard {
namespace {

using protozero::pbf_writer;

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Readers refuse a whole record for one byte that is not UTF-8.
void check_text(const char* op, const char* what, std::string_view text) {
  const size_t bad = data::first_not_utf8(text);
  REEL_CHECK(bad == text.size(), op, ": ", what, ": byte ", bad, ", ", data::hex(text[bad]), ", is not UTF-8");
}
void check_tag(const char* op, std::string_view tag) {
  REEL_CHECK(!tag.empty(), op, ": the tag is empty");
  check_text(op, "the tag", tag);
  REEL_CHECK(tag.find('\0') == std::string_view::npos, op, ": the tag has a zero byte");
}

std::string with_underscores(std::string_view tag) {
  std::string name(tag);
  for (char& c : name)
    if (c == '/' || c == '\\') c = '_';
  return name;
}

// Escaped by `%` as PyTorch does, so that different tags are different files. What a quoted string of a protocol
// buffer's text cannot hold is escaped, too.
std::string as_file_name(std::string_view tag) {
  std::string name;
  for (const char c : tag) {
    const auto code = static_cast<unsigned char>(c);
    if (code >= 0x20 && code != 0x7f && !std::strchr("%/\\\"", c))
      name += c;
    else
      (name += '%') += data::hex(c).substr(2);
  }
  return name;
}

// The entries of projector_config.pbtxt, which an earlier writer may have left, by the names of their tensors.
std::map<std::string, std::string> read_entries(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::map<std::string, std::string> entries;
  constexpr std::string_view kEnd = "\n}\n", kName = "tensor_name: \"";
  for (size_t begin = 0, end; (end = text.find(kEnd, begin)) != std::string::npos; begin = end + kEnd.size()) {
    const std::string entry = text.substr(begin, end + kEnd.size() - begin);
    const size_t name = entry.find(kName) + kName.size();
    REEL_CHECK(entry.find(kName) != std::string::npos, path.string(), ": byte ", begin, ": an entry without a name");
    entries[entry.substr(name, entry.find('"', name) - name)] = entry;
  }
  return entries;
}

// Which of TensorBoard's plugins shows a value, and what that one has to know.
void add_metadata(pbf_writer& value, const char* plugin, const std::string& content, const std::string& description) {
  pbf_writer metadata(value, value::kMetadata), data(metadata, metadata::kPluginData);
  data.add_string(metadata::kPluginName, plugin);
  if (!content.empty()) data.add_bytes(metadata::kContent, content);
  data.commit();
  if (!description.empty()) metadata.add_string(metadata::kDescription, description);
}

}  // namespace

struct SummaryWriter::Impl {
  std::filesystem::path folder;
  std::optional<EventFile> file;  // none for a rank that does not write
  std::mutex mutex;               // of what follows
  std::map<std::string, SummaryWriter> curves;
  std::optional<std::map<std::string, std::string>> embeddings;  // their entries in the projector's file, when read
  bool has_hparams = false;

  // Appends the event that fill(event) writes. The buffer is the thread's: a scalar allocates nothing.
  template <class Fill>
  void log(std::optional<int64_t> step, const Fill& fill) {
    if (!file) return;
    static constinit thread_local PerThread<std::string> buffer;
    std::string& record = *buffer;
    record.assign(EventFile::kHeader, '\0');
    {
      pbf_writer event(record);
      event.add_double(event::kWallTime, now());
      if (step) event.add_int64(event::kStep, *step);
      fill(event);
    }
    file->append(record);
  }
  // One value of a summary.
  template <class Fill>
  void log_value(const char* op, std::string_view tag, int64_t step, const Fill& fill) {
    check_tag(op, tag);
    REEL_CHECK(step >= 0, op, ": '", std::string(tag), "' at step ", step, ", which is negative");
    log(step, [&](pbf_writer& event) {
      pbf_writer summary(event, event::kSummary), value(summary, summary::kValue);
      value.add_string(value::kTag, tag.data(), tag.size());
      fill(value);
    });
  }
};

SummaryWriter::SummaryWriter(const std::filesystem::path& folder, const SummaryWriterOptions& options)
    : impl_(std::make_unique<Impl>()) {
  REEL_CHECK(options.rank >= 0, "SummaryWriter: rank ", options.rank);
  REEL_CHECK(!options.purge_step || *options.purge_step >= 0, "SummaryWriter: purge_step ", *options.purge_step);
  impl_->folder = options.every_rank ? folder / ("rank" + std::to_string(options.rank)) : folder;
  if (options.rank > 0 && !options.every_rank) return;
  impl_->file.emplace(impl_->folder, options.filename_suffix);
  impl_->log({}, [](pbf_writer& event) { event.add_string(event::kFileVersion, "brain.Event:2"); });
  if (options.purge_step)
    impl_->log(options.purge_step, [](pbf_writer& event) {
      pbf_writer(event, event::kSessionLog).add_enum(session_log::kStatus, session_log::kStart);
    });
}
SummaryWriter::~SummaryWriter() = default;
SummaryWriter::SummaryWriter(SummaryWriter&&) noexcept = default;
SummaryWriter& SummaryWriter::operator=(SummaryWriter&&) noexcept = default;

const std::filesystem::path& SummaryWriter::folder() const { return impl_->folder; }

void SummaryWriter::flush() {
  if (impl_->file) impl_->file->sync();
  const std::lock_guard lock(impl_->mutex);
  for (auto& [name, curve] : impl_->curves) curve.flush();
}

// ---- scalars --------------------------------------------------------------------------------------------------------

void SummaryWriter::add_scalar(std::string_view tag, double value, int64_t step) {
  impl_->log_value("add_scalar", tag, step,
                   [&](pbf_writer& point) { point.add_float(value::kSimpleValue, static_cast<float>(value)); });
}

void SummaryWriter::add_scalar(std::string_view tag, const Tensor& value, int64_t step) {
  REEL_CHECK(value.defined() && value.numel() == 1, "add_scalar: ", tag, " is ",
             value.defined() ? "a tensor " + value.shape().to_string() : "undefined", ", not one number");
  add_scalar(tag, value.item<double>(), step);
}

void SummaryWriter::add_scalars(std::string_view tag, const std::map<std::string, double>& values, int64_t step) {
  check_tag("add_scalars", tag);
  for (const auto& [name, value] : values) {
    check_tag("add_scalars", name);
    if (!impl_->file) return;
    const std::string folder = with_underscores(std::string(tag) + "_" + name);
    SummaryWriter* curve = nullptr;
    {
      const std::lock_guard lock(impl_->mutex);
      auto found = impl_->curves.find(folder);
      if (found == impl_->curves.end()) found = impl_->curves.emplace(folder, impl_->folder / folder).first;
      curve = &found->second;
    }
    curve->add_scalar(tag, value, step);
  }
}

// ---- tensors --------------------------------------------------------------------------------------------------------

void SummaryWriter::add_histogram(std::string_view tag, const Tensor& values, int64_t step) {
  REEL_CHECK(values.defined() && values.numel() > 0, "add_histogram: '", std::string(tag), "' of no values");
  const NoGrad guard;
  const auto count = static_cast<size_t>(values.numel());
  // Of the types that are counted float64 has all values of integers that a curve could show.
  const bool is_float = values.dtype() == kFloat32 || is_half(values.dtype()) || values.dtype() == kBool;
  const Tensor x = values.detach().to(Device()).to(is_float ? kFloat32 : kFloat64).contiguous();
  const Histogram found = is_float ? Histogram::of(std::span<const float>(x.data<float>(), count))
                                   : Histogram::of(std::span<const double>(x.data<double>(), count));
  impl_->log_value("add_histogram", tag, step, [&](pbf_writer& value) {
    if (found.nan || found.infinite)
      add_metadata(value, "histograms", {},
                   "At step " + std::to_string(step) + " not counted: " + std::to_string(found.nan) + " NaN, " +
                       std::to_string(found.infinite) + " infinite, of " + std::to_string(count) + " values.");
    pbf_writer histo(value, value::kHisto);
    histo.add_double(histogram::kMin, found.min), histo.add_double(histogram::kMax, found.max);
    histo.add_double(histogram::kNum, static_cast<double>(found.counted));
    histo.add_double(histogram::kSum, found.sum), histo.add_double(histogram::kSumSquares, found.sum_squares);
    histo.add_packed_double(histogram::kBucketLimit, found.limits.begin(), found.limits.end());
    histo.add_packed_double(histogram::kBucket, found.counts.begin(), found.counts.end());
  });
}

namespace {

// A picture's bytes [H, W, C] on the CPU.
Tensor pixels_of(const Tensor& image) {
  REEL_CHECK(image.defined() && (image.dim() == 2 || image.dim() == 3), "add_image: expected [C, H, W] or [H, W], not ",
             image.defined() ? image.shape().to_string() : "an undefined tensor");
  const Tensor chw = image.dim() == 2 ? image.detach().unsqueeze(0) : image.detach();
  const int64_t channels = chw.size(0), height = chw.size(1), width = chw.size(2);
  REEL_CHECK(channels == 1 || channels == 3 || channels == 4, "add_image: ", image.shape(), " has ", channels,
             " channels; [C, H, W] has 1 (grey), 3 (RGB) or 4 (RGBA)");
  constexpr int64_t kMost = 1 << 16;
  REEL_CHECK(height > 0 && width > 0 && height <= kMost && width <= kMost, "add_image: a picture of ", height, " x ",
             width, "; both are 1 to ", kMost);
  const Tensor hwc = chw.permute({1, 2, 0});
  if (hwc.dtype() == kUInt8) return hwc.to(Device()).contiguous();
  REEL_CHECK(hwc.is_floating_point(), "add_image: a picture of ", image.dtype(),
             "; expected uint8, or floating-point numbers in [0, 1]");
  const Tensor x = hwc.to(Device()).to(kFloat32).contiguous();
  const float least = min(x).item<float>(), most = max(x).item<float>();
  REEL_CHECK(least >= 0 && most <= 1, "add_image: values from ", least, " to ", most,
             "; expected floating-point numbers in [0, 1], or uint8");
  return round(x * 255).to(kUInt8);
}

}  // namespace

void SummaryWriter::add_image(std::string_view tag, const Tensor& image, int64_t step) {
  const NoGrad guard;
  const Tensor pixels = pixels_of(image);
  const int64_t height = pixels.size(0), width = pixels.size(1), channels = pixels.size(2);
  const std::string png = encode_png(pixels.data<uint8_t>(), height, width, channels);
  impl_->log_value("add_image", tag, step, [&](pbf_writer& value) {
    pbf_writer picture(value, value::kImage);
    picture.add_int32(image::kHeight, static_cast<int32_t>(height));
    picture.add_int32(image::kWidth, static_cast<int32_t>(width));
    picture.add_int32(image::kColorspace, static_cast<int32_t>(channels));
    picture.add_bytes(image::kEncoded, png);
  });
}

void SummaryWriter::add_embedding(const Tensor& vectors, const std::vector<std::string>& labels, std::string_view tag,
                                  int64_t step) {
  check_tag("add_embedding", tag);
  REEL_CHECK(step >= 0, "add_embedding: step ", step);
  REEL_CHECK(vectors.defined() && vectors.dim() == 2 && vectors.numel() > 0,
             "add_embedding: expected vectors [n, d], not ",
             vectors.defined() ? vectors.shape().to_string() : "an undefined tensor");
  REEL_CHECK(labels.empty() || static_cast<int64_t>(labels.size()) == vectors.size(0), "add_embedding: ", labels.size(),
             " labels for vectors ", vectors.shape());
  for (const std::string& label : labels) {
    check_text("add_embedding", "a label", label);
    REEL_CHECK(label.find_first_of("\t\r\n") == std::string::npos, "add_embedding: the label '", label,
               "' has a tab or a line break");
  }
  if (!impl_->file) return;
  const NoGrad guard;
  const Tensor x = vectors.detach().to(Device()).to(kFloat32).contiguous();
  const std::string name = as_file_name(tag) + ":" + std::to_string(step);
  const std::filesystem::path part = std::to_string(step) + "_" + as_file_name(tag);
  const std::lock_guard lock(impl_->mutex);
  std::error_code error;
  std::filesystem::create_directories(impl_->folder / part, error);
  REEL_CHECK(!error, "add_embedding: cannot make the folder ", impl_->folder / part, ": ", error.message());
  const auto write = [&](const std::filesystem::path& file, const void* bytes, int64_t count) {
    io::AtomicFile atomic(impl_->folder / file);
    atomic.write(bytes, count);
    atomic.commit();
  };
  write(part / "tensors.bytes", x.data<float>(), x.numel() * static_cast<int64_t>(sizeof(float)));
  if (!labels.empty()) {
    std::string lines;
    for (const std::string& label : labels) lines += label + "\n";
    write(part / "metadata.tsv", lines.data(), static_cast<int64_t>(lines.size()));
  }
  // In the text format of tensorboard's projector_config.proto.
  std::string entry = "embeddings {\n  tensor_name: \"" + name + "\"\n  tensor_path: \"" + part.string() +
                      "/tensors.bytes\"\n  tensor_shape: " + std::to_string(x.size(0)) +
                      "\n  tensor_shape: " + std::to_string(x.size(1)) + "\n";
  if (!labels.empty()) entry += "  metadata_path: \"" + part.string() + "/metadata.tsv\"\n";
  constexpr const char* kConfig = "projector_config.pbtxt";
  if (!impl_->embeddings) impl_->embeddings = read_entries(impl_->folder / kConfig);
  impl_->embeddings->insert_or_assign(name, entry + "}\n");
  std::string all;
  for (const auto& [key, text] : *impl_->embeddings) all += text;
  write(kConfig, all.data(), static_cast<int64_t>(all.size()));
}

// ---- text, hyperparameters, graphs ----------------------------------------------------------------------------------

void SummaryWriter::add_text(std::string_view tag, std::string_view text, int64_t step) {
  check_text("add_text", "the text", text);
  check_tag("add_text", tag);
  impl_->log_value("add_text", std::string(tag) + "/text_summary", step, [&](pbf_writer& value) {
    add_metadata(value, "text", {}, {});
    pbf_writer tensor(value, value::kTensor);
    tensor.add_enum(tensor::kDType, tensor::kString);
    pbf_writer shape(tensor, tensor::kShape);
    pbf_writer(shape, tensor::kDim).add_int64(tensor::kDimSize, 1);
    shape.commit();
    tensor.add_bytes(tensor::kStringValue, text.data(), text.size());
  });
}

namespace {

std::string experiment_of(const std::map<std::string, HParam>& hparams, const std::map<std::string, double>& metrics) {
  std::string content;
  pbf_writer plugin(content), experiment(plugin, hparams::kExperiment);
  constexpr int kTypes[] = {hparams::kTypeBool, hparams::kTypeFloat64, hparams::kTypeString};  // as HParam's
  for (const auto& [name, hparam] : hparams) {
    pbf_writer info(experiment, hparams::kHParamInfos);
    info.add_string(hparams::kName, name);
    info.add_enum(hparams::kType, kTypes[hparam.value().index()]);
  }
  for (const auto& [name, metric] : metrics) {
    pbf_writer info(experiment, hparams::kMetricInfos);
    pbf_writer(info, hparams::kMetricName).add_string(hparams::kMetricTag, name);
  }
  experiment.commit();
  return content;
}

std::string session_start_of(const std::map<std::string, HParam>& hparams) {
  std::string content;
  pbf_writer plugin(content), start(plugin, hparams::kSessionStart);
  for (const auto& [name, hparam] : hparams) {
    pbf_writer entry(start, hparams::kValues);
    entry.add_string(kKey, name);
    pbf_writer value(entry, kMapped);
    if (const bool* flag = std::get_if<bool>(&hparam.value())) value.add_bool(hparams::kBoolValue, *flag);
    if (const double* number = std::get_if<double>(&hparam.value())) value.add_double(hparams::kNumberValue, *number);
    if (const auto* text = std::get_if<std::string>(&hparam.value())) value.add_string(hparams::kStringValue, *text);
  }
  start.add_double(hparams::kStartTime, now());
  start.commit();
  return content;
}

std::string session_end() {
  std::string content;
  pbf_writer plugin(content), end(plugin, hparams::kSessionEnd);
  end.add_enum(hparams::kStatus, hparams::kSuccess);
  end.add_double(hparams::kEndTime, now());
  end.commit();
  return content;
}

}  // namespace

void SummaryWriter::add_hparams(const std::map<std::string, HParam>& hparams,
                                const std::map<std::string, double>& metrics, int64_t step) {
  for (const auto& [name, hparam] : hparams) {
    check_tag("add_hparams", name);
    if (const auto* text = std::get_if<std::string>(&hparam.value())) check_text("add_hparams", name.c_str(), *text);
  }
  for (const auto& [name, metric] : metrics) check_tag("add_hparams", name);
  {
    const std::lock_guard lock(impl_->mutex);
    REEL_CHECK(!std::exchange(impl_->has_hparams, true),
               "add_hparams: this run has hyperparameters already; another row of the table is another run, with a "
               "SummaryWriter and a folder of its own");
  }
  const auto log = [&](const char* tag, const std::string& content) {
    impl_->log_value("add_hparams", tag, 0, [&](pbf_writer& value) { add_metadata(value, "hparams", content, {}); });
  };
  log("_hparams_/experiment", experiment_of(hparams, metrics));
  log("_hparams_/session_start_info", session_start_of(hparams));
  for (const auto& [name, metric] : metrics) add_scalar(name, metric, step);
  log("_hparams_/session_end_info", session_end());
}

void SummaryWriter::add_graph_of(nn::Module& model, TensorList inputs, const Run& run) {
  if (!impl_->file) return;
  const std::string graph = graph_of(model, inputs, run);
  impl_->log({}, [&](pbf_writer& event) { event.add_bytes(event::kGraphDef, graph); });
}

}  // namespace reel::tensorboard
