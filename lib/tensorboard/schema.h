#pragma once
#include <cstdint>

// The numbers of the protocol buffers' fields that TensorBoard reads: tensorflow/core/util/event.proto,
// core/framework/{summary,histogram,tensor,tensor_shape,types,graph,node_def,attr_value,versions}.proto,
// tensorboard/plugins/hparams/{plugin_data,api}.proto and google/protobuf/struct.proto. Map entries have key 1 and
// value 2.
namespace reel::tensorboard {

using Field = uint32_t;

namespace event {
constexpr Field kWallTime = 1, kStep = 2, kFileVersion = 3, kGraphDef = 4, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr Field kStatus = 1;
constexpr int kStart = 1;
}  // namespace session_log
namespace summary {
constexpr Field kValue = 1;
}
namespace value {
constexpr Field kTag = 1, kSimpleValue = 2, kImage = 4, kHisto = 5, kTensor = 8, kMetadata = 9;
}
namespace metadata {
constexpr Field kPluginData = 1, kDescription = 3;
constexpr Field kPluginName = 1, kContent = 2;  // of PluginData
}  // namespace metadata
namespace image {
constexpr Field kHeight = 1, kWidth = 2, kColorspace = 3, kEncoded = 4;
}
namespace histogram {
constexpr Field kMin = 1, kMax = 2, kNum = 3, kSum = 4, kSumSquares = 5, kBucketLimit = 6, kBucket = 7;
}
namespace tensor {
constexpr Field kDType = 1, kShape = 2, kStringValue = 8;
constexpr int kString = 7;               // DT_STRING
constexpr Field kDim = 2, kDimSize = 1;  // of TensorShapeProto and its Dim
}  // namespace tensor
namespace hparams {
constexpr Field kExperiment = 2, kSessionStart = 3, kSessionEnd = 4;  // HParamsPluginData
constexpr Field kHParamInfos = 4, kMetricInfos = 5;                   // Experiment
constexpr Field kName = 1, kType = 4;                                 // HParamInfo
constexpr int kTypeString = 1, kTypeBool = 2, kTypeFloat64 = 3;       // DataType
constexpr Field kMetricName = 1, kMetricTag = 2;                      // MetricInfo, MetricName
constexpr Field kValues = 1, kStartTime = 5;                          // SessionStartInfo
constexpr Field kStatus = 1, kEndTime = 2;                            // SessionEndInfo
constexpr int kSuccess = 1;                                           // Status
constexpr Field kNumberValue = 2, kStringValue = 3, kBoolValue = 4;   // google.protobuf.Value
}  // namespace hparams
namespace graph {
constexpr Field kNode = 1, kVersions = 4, kProducer = 1;
constexpr int kProducerVersion = 22;                        // what PyTorch writes
constexpr Field kName = 1, kOp = 2, kInput = 3, kAttr = 5;  // NodeDef
constexpr Field kList = 1, kListShape = 7;                  // AttrValue, its ListValue
}  // namespace graph
constexpr Field kKey = 1, kMapped = 2;  // of a map's entry

}  // namespace reel::tensorboard
