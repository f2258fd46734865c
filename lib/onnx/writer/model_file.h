#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "reel/tensor.h"

namespace reel::onnx::writer {

struct NodeAttribute {
  using Value = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<std::string>>;
  template <std::integral T>
  NodeAttribute(const char* name_, T number) : name(name_), value(static_cast<int64_t>(number)) {}
  NodeAttribute(const char* name_, double number) : name(name_), value(static_cast<float>(number)) {}
  NodeAttribute(const char* name_, const char* text) : name(name_), value(std::string(text)) {}
  NodeAttribute(const char* name_, std::vector<int64_t> list) : name(name_), value(std::move(list)) {}
  NodeAttribute(const char* name_, std::vector<std::string> list) : name(name_), value(std::move(list)) {}

  const char* name;
  Value value;
};

struct Node {
  std::string type;
  std::vector<std::string> inputs, outputs;
  std::vector<NodeAttribute> attributes;
};

/// An input or output of the graph. A dimension has a size, a name, or neither (-1).
struct Port {
  std::string name;
  DType dtype;
  std::vector<std::variant<int64_t, std::string>> dims;
};

/// A model as it is written.
struct ModelFile {
  std::string name, doc, graph_doc;
  std::vector<Node> nodes;  // each after those whose outputs it reads
  std::vector<std::pair<std::string, Tensor>> initializers;
  std::vector<Port> inputs, outputs;

  /// Replaces the file, and the one that holds the initializers' elements if these are more than `external_above`
  /// bytes.
  void write(const std::filesystem::path& file, int64_t external_above) const;
};

/// TensorProto.DataType of a dtype.
int element_type(DType dtype);

}  // namespace reel::onnx::writer
