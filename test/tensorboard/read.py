"""What TensorBoard's own readers find in the log of test/tensorboard/writer.cpp: read.py FOLDER."""
import sys

from google.protobuf import text_format
from tensorboard.backend.event_processing import event_accumulator
from tensorboard.compat.proto import graph_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from tensorboard.plugins.projector import projector_config_pb2

folder = sys.argv[1]
log = event_accumulator.EventAccumulator(folder, size_guidance={event_accumulator.TENSORS: 0})
log.Reload()
tags = log.Tags()
loss = log.Scalars("loss")[0]
assert (loss.step, loss.value) == (3, 0.25), loss
assert log.Scalars("accuracy")[0].value == 92
weights = log.Histograms("weights")[0].histogram_value
assert (weights.min, weights.max, weights.num, weights.sum) == (-4, 2, 3, -1), weights
assert sum(weights.bucket) == 3
assert log.Histograms("none")[0].histogram_value.num == 0
image = log.Images("picture")[0]
assert (image.width, image.height) == (4, 5), image
text = log.Tensors("notes/text_summary")[0].tensor_proto
assert text.string_val[0].decode() == "naïve"
hparams = plugin_data_pb2.HParamsPluginData()
hparams.ParseFromString(log.SummaryMetadata("_hparams_/session_start_info").plugin_data.content)
assert hparams.session_start_info.hparams["optimizer"].string_value == "adam", hparams
assert hparams.session_start_info.hparams["lr"].number_value == 0.1
graph = log.Graph()
names = {node.name for node in graph.node}
assert "fc/weight" in names and "input_0" in names, names
assert all(source.split(":")[0] in names for node in graph.node for source in node.input)
config = projector_config_pb2.ProjectorConfig()
text_format.Parse(open(folder + "/projector_config.pbtxt").read(), config)
assert list(config.embeddings[0].tensor_shape) == [2, 3], config
assert open(folder + "/" + config.embeddings[0].metadata_path).read() == "a\nb\n"
print("read", {kind: found for kind, found in tags.items() if found})
