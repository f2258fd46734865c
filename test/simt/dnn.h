#pragma once
#include <string_view>

namespace simt {

/// Whether SIMT_DNN names a way in which cuDNN might behave. 0: it refuses every problem; no_bias: it refuses graphs of
/// a convolution and its bias; wrong_attention: its attention forgets the scale; ignored_lengths: its attention takes
/// all sequences as whole. Of recurrent layers, no_forward: it refuses them only when they are to run; no_backward: it
/// refuses their gradients; no_memory: they fail; apart: the parameters of their gates are not next to each other.
bool dnn_behaves(std::string_view way);

/// Whether recurrent layers are cuDNN's; absent where this build has none.
bool dnn_layers();

}  // namespace simt
