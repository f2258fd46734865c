#pragma once
#include <cstdint>

// The numbers of the protocol buffers' fields in onnx.proto (IR version 8), a namespace a message.
namespace reel::onnx {

using Field = uint32_t;

constexpr int64_t kIrVersion = 8;   // the one that opset 17 came with
constexpr int64_t kOpset = 17;      // what is written
constexpr int64_t kFirstOpset = 9;  // what is read
constexpr int64_t kLastOpset = 20;

namespace model {  // ModelProto
constexpr Field kIrVersion = 1, kProducerName = 2, kProducerVersion = 3, kDomain = 4, kModelVersion = 5, kDocString = 6,
                kGraph = 7, kOpsetImport = 8, kMetadataProps = 14, kTrainingInfo = 20, kFunctions = 25;
}
namespace opset {  // OperatorSetIdProto
constexpr Field kDomain = 1, kVersion = 2;
}
namespace graph {  // GraphProto
constexpr Field kNode = 1, kName = 2, kInitializer = 5, kDocString = 10, kInput = 11, kOutput = 12, kValueInfo = 13,
                kQuantizationAnnotation = 14, kSparseInitializer = 15;
}
namespace node {  // NodeProto
constexpr Field kInput = 1, kOutput = 2, kName = 3, kOpType = 4, kAttribute = 5, kDocString = 6, kDomain = 7;
}
namespace attribute {  // AttributeProto
constexpr Field kName = 1, kF = 2, kI = 3, kS = 4, kT = 5, kG = 6, kFloats = 7, kInts = 8, kStrings = 9, kTensors = 10,
                kGraphs = 11, kDocString = 13, kTp = 14, kType = 20, kRefAttrName = 21, kSparseTensor = 22;
enum Type : int {  // AttributeType
  kUndefinedType = 0,
  kFloatType = 1,
  kIntType = 2,
  kStringType = 3,
  kTensorType = 4,
  kGraphType = 5,
  kFloatsType = 6,
  kIntsType = 7,
  kStringsType = 8,
  kTensorsType = 9,
  kGraphsType = 10,
  kSparseTensorType = 11
};
}  // namespace attribute
namespace tensor {  // TensorProto
constexpr Field kDims = 1, kDataType = 2, kSegment = 3, kFloatData = 4, kInt32Data = 5, kStringData = 6, kInt64Data = 7,
                kName = 8, kRawData = 9, kDoubleData = 10, kUint64Data = 11, kDocString = 12, kExternalData = 13,
                kDataLocation = 14;
enum Location : int { kDefault = 0, kExternal = 1 };  // DataLocation
}  // namespace tensor
namespace data_type {  // TensorProto.DataType
enum DataType : int {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBfloat16 = 16
};
// All by number, for messages.
constexpr const char* kNames[] = {
    "undefined", "float",        "uint8",          "int8",       "uint16",         "int16",  "int32",     "int64",
    "string",    "bool",         "float16",        "double",     "uint32",         "uint64", "complex64", "complex128",
    "bfloat16",  "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz", "uint4",  "int4",      "float4e2m1"};
}  // namespace data_type
namespace value_info {  // ValueInfoProto
constexpr Field kName = 1, kType = 2, kDocString = 3;
}
namespace type {  // TypeProto
constexpr Field kTensorType = 1, kSequenceType = 4, kMapType = 5, kDenotation = 6, kSparseTensorType = 8,
                kOptionalType = 9;
}
namespace tensor_type {  // TypeProto.Tensor
constexpr Field kElemType = 1, kShape = 2;
}
namespace shape {  // TensorShapeProto
constexpr Field kDim = 1;
}
namespace dimension {  // TensorShapeProto.Dimension
constexpr Field kDimValue = 1, kDimParam = 2, kDenotation = 3;
}
namespace string_entry {  // StringStringEntryProto, of external_data (location, offset, length) and of metadata_props
constexpr Field kKey = 1, kValue = 2;
}

}  // namespace reel::onnx
