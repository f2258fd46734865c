#pragma once
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "reel/nn/module.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Logs that TensorBoard shows (https://www.tensorflow.org/tensorboard), with the names of PyTorch's
/// torch.utils.tensorboard:
///
///   tensorboard::SummaryWriter log("runs/a");
///   log.add_scalar("train/loss", loss.item<double>(), step);
///
/// and `tensorboard --logdir runs`. Not part of reel/reel.h.
namespace reel::tensorboard {

/// A value of a hyperparameter: a bool, a number, or text.
class HParam {
 public:
  /// A bool stays one.
  HParam(bool value) : value_(value) {}
  /// Numbers are kept as double.
  template <class T>
  requires(std::integral<T> || std::floating_point<T>) HParam(T value) : value_(static_cast<double>(value)) {}
  /// Text, in UTF-8.
  HParam(std::string value) : value_(std::move(value)) {}
  /// Text, in UTF-8.
  HParam(const char* value) : value_(std::string(value)) {}
  /// What it holds.
  const std::variant<bool, double, std::string>& value() const { return value_; }

 private:
  std::variant<bool, double, std::string> value_;
};

/// Of SummaryWriter.
struct SummaryWriterOptions {
  /// For a run that continues from a checkpoint of this step: TensorBoard hides what the folder's earlier files have at
  /// this step and later ones.
  std::optional<int64_t> purge_step = {};
  /// Of the process, if several train one model (reel/distributed.h). Only rank 0 writes, …
  int rank = 0;
  /// … or every rank does, in a folder of its own: folder/rank0, folder/rank1, …, a run each.
  bool every_rank = false;
  /// The end of the file's name.
  std::string filename_suffix = {};
};

/// Writes one run: a folder with a file of events, which is always a new one, so that no writer harms another's.
///
/// Every call appends one record by one write(), without a buffer in the program: when the process is killed, what was
/// logged is in the file; flush() makes the disk have it, too. Calls from several threads are safe. An Error, after
/// which the file ends with the last whole record and the writer goes on: an empty tag, a negative step, a tensor of
/// the wrong shape or type, text that is not UTF-8, a full disk. Tensors may be on any device; autograd does not see
/// what is done with them.
class SummaryWriter {
 public:
  /// Makes the folder, if need be, and the file `events.out.tfevents.<seconds>.<host>.<process>.<number>`.
  explicit SummaryWriter(const std::filesystem::path& folder, const SummaryWriterOptions& options = {});
  ~SummaryWriter();
  /// A writer that has been moved from can only be assigned to and destroyed.
  SummaryWriter(SummaryWriter&&) noexcept;
  /// As the constructor.
  SummaryWriter& operator=(SummaryWriter&&) noexcept;

  /// The folder of the run.
  const std::filesystem::path& folder() const;

  /// One point of a curve, kept as float32. NaN and infinity are written, and TensorBoard marks them.
  void add_scalar(std::string_view tag, double value, int64_t step);
  /// The same of a tensor of one element, such as a loss.
  void add_scalar(std::string_view tag, const Tensor& value, int64_t step);
  /// Several curves in one chart: each is a run of its own, in the folder `<this one>/<tag>_<name>`, with a "/" of the
  /// tag made "_", and the tag is the same for all.
  void add_scalars(std::string_view tag, const std::map<std::string, double>& values, int64_t step);
  /// How the values of a tensor of any shape and type are distributed, in buckets whose bounds grow by 10 % from 1e-12
  /// to 1e20 on both sides of 0. NaN and infinities are left out, and the description says how many they were. An
  /// empty tensor is an Error.
  void add_histogram(std::string_view tag, const Tensor& values, int64_t step);
  /// A picture [C, H, W] or [H, W], where C is 1 (grey), 3 (RGB) or 4 (RGBA): uint8, or floating-point numbers in
  /// [0, 1]; others are an Error. It is kept as PNG, without loss but for rounding to 8 bits.
  void add_image(std::string_view tag, const Tensor& image, int64_t step);
  /// Text, shown as Markdown.
  void add_text(std::string_view tag, std::string_view text, int64_t step);
  /// A row of the table of hyperparameters, which is what TensorBoard's tab HPARAMS compares runs by: those of this
  /// run, and what they led to. Metrics become scalars at `step`, too. Once a run.
  void add_hparams(const std::map<std::string, HParam>& hparams, const std::map<std::string, double>& metrics,
                   int64_t step = 0);
  /// Points [n, d] for the projector, with a label each, or none for all. Labels have no tabs or line breaks. The
  /// vectors are kept as float32 in files beside the events'. A second call for the same tag and step replaces them;
  /// what earlier writers have put into the folder stays.
  void add_embedding(const Tensor& vectors, const std::vector<std::string>& labels, std::string_view tag,
                     int64_t step = 0);
  /// The graph of ops that leads from the inputs and the parameters to the outputs, grouped by the modules in which
  /// they ran: of one run of model(inputs…), in evaluation mode. Tensors that require grad, but are no parameters of
  /// the model, are under "used_but_not_registered": see nn::check. What the tape does not record is missing: integer
  /// inputs, and ops on them. The model's modes, buffers and gradients are left as they were.
  template <std::derived_from<nn::Module> M>
  void add_graph(M& model, TensorList inputs) {
    add_graph_of(model, inputs, [&](const std::vector<Tensor>& x) { return nn::internal::call_with_list(model, x); });
  }

  /// Returns when the disk has all that was written.
  void flush();

 private:
  using Run = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  void add_graph_of(nn::Module& model, TensorList inputs, const Run& run);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reel::tensorboard
#pragma GCC visibility pop
