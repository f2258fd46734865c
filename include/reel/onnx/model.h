#pragma once
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reel/nn/module.h"
#include "reel/tensor.h"

#pragma GCC visibility push(default)
/// Models of other libraries, in the ONNX format (https://onnx.ai):
///
///   onnx::Model body = onnx::load("resnet18.onnx");
///   Tensor y = body(x);
namespace reel::onnx {

struct Graph;

/// Of load().
struct LoadModelOptions {
  /// Names of values to compute instead of the graph's outputs: {.outputs = {"features"}} takes the head off. What they
  /// do not need is not loaded. A name that is not there is an Error that lists the graph's last values.
  std::vector<std::string> outputs = {};
  /// Prepares the model for inference as nn::fuse_for_inference does, which cannot be called for it: batch norms are
  /// folded into the convolutions in front of them, ReLUs are computed in place, weights are kept in the
  /// layouts of kernels. Results are the same but for rounding; train() is an Error, parameters are frozen, and those
  /// of norms are gone.
  bool fuse_for_inference = false;
};

/// What an ONNX file computes, as a layer: differentiable, and trained, moved and saved as any other.
///
/// Its parameters are the file's floating-point initializers of one or more dimensions, under their names, in which
/// dots make paths: "layer1.0.conv1.weight". (A name that cannot be a path, or clashes with another, gets '_' for '.'
/// and a number.) Buffers are the running statistics of BatchNormalization, the scales of Resize and what is 0-d: such
/// numbers are constants of exporters. What the file has as Constant nodes, and integers, is fixed. An exporter may
/// have folded weights: transposed, joined, or with a norm in them; and it does not tell a table of constants from a
/// parameter: freeze one by get_parameter(path).requires_grad_(false).
///
/// A model is loaded in eval() mode. The mode decides, not the file: in training Dropout drops, and BatchNormalization
/// normalises by the statistics of the batch and moves its running ones (as nn::BatchNorm2d: the variance over n - 1).
/// Otherwise Dropout does nothing and the running statistics are used. Exporters mostly write graphs for inference
/// without Dropout, and with the norms folded into convolutions.
///
/// Files of opset 9 to 20 of ai.onnx are read, with tensors of float, double, float16, bfloat16, int64, int32, uint8
/// and bool. Ops that are not known (among them If, Loop, Scan and those of other domains) are an Error that lists all
/// of them; so are attributes that are not known. A file is checked whole before anything runs: it may come from
/// anywhere. External data are read from files in the model's folder only.
///
/// Integers, such as shapes, stay on the CPU, whatever device the model is moved to.
struct Model : nn::Layer<Model> {
  ///@{
  /// A model of its own, or a part of another module.
  explicit Model(const std::filesystem::path& path, const LoadModelOptions& options = {});
  Model(nn::Module& parent, std::string name, const std::filesystem::path& path, const LoadModelOptions& options = {})
      : Model(path, options) {
    parent.register_module(std::move(name), *this);
  }
  ///@}
  Model(Model&& other);  ///< Its place in a parent moves along.
  ~Model() override;

  /// Of a model with one input and one output.
  Tensor forward(const Tensor& x) const;
  /// All outputs, in the order of output_names(), of all inputs, in that of input_names(). Inputs have the declared
  /// rank, and the declared sizes where the file has numbers for them; a floating-point input may be of any such dtype.
  std::vector<Tensor> forward(TensorList inputs) const;
  Tensor operator()(const Tensor& x) const { return Layer::operator()(x); }  ///< forward(x), with the hooks.
  ///@{
  /// forward(inputs), with the hooks: model({ids, mask}).
  std::vector<Tensor> operator()(TensorList inputs) const { return Layer::operator()(inputs); }
  std::vector<Tensor> operator()(std::initializer_list<Tensor> inputs) const {
    return (*this)(TensorList(inputs));  // {x} could be a Tensor as well as a TensorList
  }
  ///@}

  std::vector<std::string> input_names() const;   ///< As the file calls them.
  std::vector<std::string> output_names() const;  ///< The same.
  std::string extra_repr() const override;        ///< What is printed in the parentheses.

 private:
  struct Part;
  struct Weights;
  enum Kind { kTrained, kFixed, kConstant };
  void add(const std::string& name, int value, const Tensor& tensor, Kind kind);
  void freeze();

  std::unique_ptr<Graph> graph_;
  std::unique_ptr<Weights> weights_;
};

/// Reads a model; see Model. An Error names the file and what is wrong, and the byte where that is known.
Model load(const std::filesystem::path& path, const LoadModelOptions& options = {});

}  // namespace reel::onnx
#pragma GCC visibility pop
