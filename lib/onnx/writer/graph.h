#pragma once
#include <string>
#include <vector>

#include "lib/tensor/op_trace.h"

namespace reel::onnx::writer {

/// What one run of a model has written down.
struct Run {
  std::string sizes;  // of the dynamic dimensions, for messages: "batch = 3"
  std::vector<TracedOp> ops;
  std::vector<OpTrace::Value> values;
  std::vector<int> inputs, outputs;
  std::set<std::pair<int, int>> size_reads;  // values and dimensions whose sizes the program has read
};

/// What several runs have in common. In all of them the same ops read the same values, but sizes may differ.
struct Graph {
  std::vector<Run> runs;
  std::vector<bool> fixed;  // for each value: the same elements in all runs, whatever the inputs are

  explicit Graph(std::vector<Run> all);
  const std::vector<TracedOp>& ops() const { return runs[0].ops; }
  const std::vector<int>& inputs() const { return runs[0].inputs; }
  const std::vector<int>& outputs() const { return runs[0].outputs; }
  const OpTrace::Value& value(int number, size_t run = 0) const {
    return runs[run].values[static_cast<size_t>(number)];
  }
  /// A number of each run, as a message shows it: "3 at batch = 2, 5 at batch = 4".
  std::string show(const std::vector<int64_t>& numbers) const;
};

}  // namespace reel::onnx::writer
