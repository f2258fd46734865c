#pragma once
#include <initializer_list>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <variant>
#include <vector>

#include "lib/io/elements.h"
#include "lib/onnx/schema.h"
#include "reel/tensor.h"

// Writes small ONNX files.
namespace onnx_file {

using namespace reel;
using protozero::pbf_writer;
namespace schema = reel::onnx;

template <class Fill>
std::string message(const Fill& fill) {
  std::string bytes;
  pbf_writer writer(bytes);
  fill(writer);
  return bytes;
}

inline int type_of(DType dtype) {
  namespace types = schema::data_type;
  const int types_of[] = {types::kBool,    types::kUint8,    types::kInt32, types::kInt64,
                          types::kFloat16, types::kBfloat16, types::kFloat, types::kDouble};
  return types_of[static_cast<int>(dtype)];
}

inline std::string tensor_bytes(const std::string& name, const Tensor& given) {
  const Tensor tensor = given.detach().contiguous();
  return message([&](pbf_writer& w) {
    for (const int64_t size : tensor.shape()) w.add_int64(schema::tensor::kDims, size);
    w.add_int32(schema::tensor::kDataType, type_of(tensor.dtype()));
    w.add_string(schema::tensor::kName, name);
    w.add_bytes(schema::tensor::kRawData, static_cast<const char*>(io::bytes_of(tensor)),
                static_cast<size_t>(io::byte_count(tensor)));
  });
}

struct Attribute {
  std::string name;
  std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>, Tensor> value;

  std::string bytes() const {
    return message([&](pbf_writer& w) {
      namespace field = schema::attribute;
      w.add_string(field::kName, name);
      const int types[] = {field::kIntType,  field::kFloatType,  field::kStringType,
                           field::kIntsType, field::kFloatsType, field::kTensorType};
      w.add_int32(field::kType, types[value.index()]);
      if (const auto* i = std::get_if<int64_t>(&value)) w.add_int64(field::kI, *i);
      if (const auto* f = std::get_if<double>(&value)) w.add_float(field::kF, static_cast<float>(*f));
      if (const auto* s = std::get_if<std::string>(&value)) w.add_string(field::kS, *s);
      if (const auto* t = std::get_if<Tensor>(&value)) w.add_message(field::kT, tensor_bytes("", *t));
      if (const auto* ints = std::get_if<std::vector<int64_t>>(&value))
        for (const int64_t i : *ints) w.add_int64(field::kInts, i);
      if (const auto* floats = std::get_if<std::vector<double>>(&value))
        for (const double f : *floats) w.add_float(field::kFloats, static_cast<float>(f));
    });
  }
};
using Attributes = std::vector<Attribute>;
using Names = std::vector<std::string>;

// A model that is added to; bytes() is the file.
struct File {
  int64_t opset = 17;
  std::string graph = {};

  File& add(uint32_t field, const std::string& part) {
    pbf_writer(graph).add_message(field, part);
    return *this;
  }
  File& port(uint32_t field, const std::string& name, DType dtype, const std::vector<int64_t>* shape) {
    return add(field, message([&](pbf_writer& w) {
                 w.add_string(schema::value_info::kName, name);
                 w.add_message(schema::value_info::kType, message([&](pbf_writer& type) {
                                 type.add_message(schema::type::kTensorType, message([&](pbf_writer& of_tensor) {
                                                    of_tensor.add_int32(schema::tensor_type::kElemType, type_of(dtype));
                                                    if (shape)
                                                      of_tensor.add_message(schema::tensor_type::kShape, dims(*shape));
                                                  }));
                               }));
               }));
  }
  File& input(const std::string& name, DType dtype = kFloat32) {
    return port(schema::graph::kInput, name, dtype, nullptr);
  }
  File& input(const std::string& name, const std::vector<int64_t>& shape, DType dtype = kFloat32) {
    return port(schema::graph::kInput, name, dtype, &shape);
  }
  File& output(const std::string& name) { return port(schema::graph::kOutput, name, kFloat32, nullptr); }
  File& weight(const std::string& name, const Tensor& tensor) {
    return add(schema::graph::kInitializer, tensor_bytes(name, tensor));
  }
  File& node(const std::string& op, const Names& inputs, const Names& outputs, const Attributes& attributes = {},
             const std::string& domain = "") {
    return add(schema::graph::kNode, message([&](pbf_writer& w) {
                 for (const std::string& name : inputs) w.add_string(schema::node::kInput, name);
                 for (const std::string& name : outputs) w.add_string(schema::node::kOutput, name);
                 w.add_string(schema::node::kName, op + "_1");
                 w.add_string(schema::node::kOpType, op);
                 for (const Attribute& attribute : attributes)
                   w.add_message(schema::node::kAttribute, attribute.bytes());
                 if (!domain.empty()) w.add_string(schema::node::kDomain, domain);
               }));
  }
  std::string bytes() const {
    return message([&](pbf_writer& w) {
      w.add_int64(schema::model::kIrVersion, 8);
      w.add_message(schema::model::kOpsetImport, message([&](pbf_writer& set) {
                      set.add_string(schema::opset::kDomain, "");
                      set.add_int64(schema::opset::kVersion, opset);
                    }));
      w.add_message(schema::model::kGraph, graph);
    });
  }

 private:
  static std::string dims(const std::vector<int64_t>& shape) {
    return message([&](pbf_writer& w) {
      for (const int64_t size : shape)
        w.add_message(schema::shape::kDim, message([&](pbf_writer& dim) {
                        if (size < 0)
                          dim.add_string(schema::dimension::kDimParam, "n");
                        else
                          dim.add_int64(schema::dimension::kDimValue, size);
                      }));
    });
  }
};

}  // namespace onnx_file
