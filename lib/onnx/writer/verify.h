// Compares an exported graph with the program that it was made of.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "lib/onnx/writer/dynamic.h"
#include "lib/onnx/writer/graph.h"
#include "lib/onnx/writer/model_file.h"

namespace reel::onnx::writer {

/// A Trace runs the model on inputs that are its own, and writes its ops down.
using Trace = std::function<Run(const std::vector<Tensor>& inputs, const std::string& sizes)>;

/// Runs the model and the file that was made of it at sizes that were not traced: 1 to 4, and larger ones, of each
/// dynamic dimension whose sizes the caller has not given. It is an Error if they differ. Sizes that
/// the model does not take are left out. Returns the sizes, as text.
std::string verify(const ModelFile& file, const Graph& graph, const Dynamic& dynamic, TensorList examples,
                   const Trace& trace);

}  // namespace reel::onnx::writer
