// Recurrent layers computed by cuDNN
// (https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-adv-library.html). Its gates, a GRU's bias
// within the product with r, and packed sequences are PyTorch's, and so reel's. The algorithm is the standard one: the
// persistent ones support neither all sizes nor sequences of different lengths. It has given other bits in each run
// where several streams shared a handle of cuBLAS, which cuDNN does not use from its version 9 on.
#include "cuda/dnn_recurrence.h"

#include <algorithm>
#include <limits>
#include <span>
#include <sstream>

#include "cuda/dnn.h"
#include "cuda/dnn_handle.h"
#include "cuda/dnn_types.h"
#include "cuda/kernels.h"
#include "cuda/plans.h"
#include "cuda/recurrence.h"
#include "cuda/runtime.h"
#include "lib/device/kernels/copy.h"

namespace reel::cuda {

// ---- descriptors ----------------------------------------------------------------------------------------------------

namespace {

cudnnRNNMode_t mode_of(Recurrence::Kind kind) {
  switch (kind) {
    case Recurrence::kLstm: return CUDNN_LSTM;
    case Recurrence::kGru: return CUDNN_GRU;
    case Recurrence::kTanh: return CUDNN_RNN_TANH;
    default: return CUDNN_RNN_RELU;
  }
}
bool has_bias(const RnnLayer& layer) { return layer.parameters[0][RnnLayer::kBiasIh] != nullptr; }

}  // namespace

cudnnStatus_t RnnDescriptors::set_cell(const RnnLayer& layer, bool tf32) {
  const cudnnMathType_t math = is_half(layer.dtype) ? CUDNN_TENSOR_OP_MATH : tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
  const auto in = static_cast<int32_t>(layer.in), hidden = static_cast<int32_t>(layer.hidden);
  return cudnnSetRNNDescriptor_v8(
      cell, CUDNN_RNN_ALGO_STANDARD, mode_of(layer.kind), has_bias(layer) ? CUDNN_RNN_DOUBLE_BIAS : CUDNN_RNN_NO_BIAS,
      layer.directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, dnn_type(layer.dtype),
      dnn_wide_type(layer.dtype), math, in, hidden, hidden, 1, nullptr, CUDNN_RNN_PADDED_IO_DISABLED);
}

bool RnnDescriptors::set_lengths(const RnnLayer& layer) {
  next_.resize(static_cast<size_t>(layer.rows));
  write_lengths(layer, next_.data());
  if (next_ == lengths_) return false;
  lengths_.swap(next_);
  return true;
}

cudnnStatus_t RnnDescriptors::set_sequences(const RnnLayer& layer) {
  const auto set = [&](const Sequences& sequences, int64_t columns) {
    return cudnnSetRNNDataDescriptor(sequences, dnn_type(layer.dtype), CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED,
                                     static_cast<int>(layer.steps), static_cast<int>(layer.rows),
                                     static_cast<int>(columns), lengths_.data(), nullptr);
  };
  const int rows = static_cast<int>(layer.rows), hidden = static_cast<int>(layer.hidden);
  const int sizes[] = {layer.directions, rows, hidden}, strides[] = {rows * hidden, hidden, 1};
  cudnnStatus_t status = set(x, layer.in);
  if (status == CUDNN_STATUS_SUCCESS) status = set(y, layer.directions * layer.hidden);
  if (status == CUDNN_STATUS_SUCCESS)
    status = cudnnSetTensorNdDescriptor(state, dnn_type(layer.dtype), 3, sizes, strides);
  return status;
}

// ---- plans ----------------------------------------------------------------------------------------------------------

namespace {

constexpr size_t kMaxPlans = 64;  // per thread and device

void report(const RnnLayer& layer, cudnnStatus_t status) {
  static constexpr const char* kKinds[] = {"LSTM", "GRU", "tanh", "ReLU"};
  std::ostringstream text;
  text << "cuDNN does not compute a recurrent layer (" << kKinds[layer.kind] << ", " << layer.in << " to "
       << layer.hidden << " in " << name_of(layer.dtype) << ", " << layer.rows << " sequences of up to " << layer.steps
       << " steps): " << cudnnGetErrorString(status);
  note_fallback(text.str());
}

/// Data as it is, or a copy where it lies at an address that cuDNN's kernels might not take.
class Aligned {
 public:
  Aligned(const void* data, int64_t elements, DType dtype)
      : bytes_(data && alignment_of(data) < kAlignment ? elements * size_of(dtype) : 0), data_(data), copy_(bytes_) {
    if (!bytes_) return;
    CUDA_CHECK(cudaMemcpyAsync(copy_, data, static_cast<size_t>(bytes_), cudaMemcpyDeviceToDevice, stream()));
    data_ = copy_;
  }
  operator const void*() const { return data_; }

 private:
  static constexpr int64_t kAlignment = 16;
  int64_t bytes_;
  const void* data_;
  Scratch<char> copy_;
};
/// The input and the first states.
struct Inputs {
  Aligned x, h, c;
  explicit Inputs(const RnnLayer& layer)
      : x(layer.x, layer.total * layer.in, layer.dtype),
        h(layer.first_h, states(layer), layer.dtype),
        c(layer.first_c, states(layer), layer.dtype) {}
  static int64_t states(const RnnLayer& layer) { return layer.directions * layer.rows * layer.hidden; }
};

/// Copies by one launch.
class Copies {
 public:
  void add(const void* from, void* to, DType dtype, int64_t numel) {
    all_[count_++] = whole_copy(from, dtype, to, dtype, numel);
  }
  bool empty() const { return count_ == 0; }
  void run() const { table().copy_blocks(std::span(all_).first(count_)); }

 private:
  std::array<BlockCopy, 2 * RnnLayer::kParameters> all_;
  size_t count_ = 0;
};

/// A layer's descriptors, and where its parameters go in cuDNN's buffer of them.
class Plan {
 public:
  Plan(cudnnHandle_t handle, const RnnLayer& layer, bool tf32) : status_(rnn_.set_cell(layer, tf32)) {
    if (status_ == CUDNN_STATUS_SUCCESS) status_ = find_places(handle, layer);
    if (status_ != CUDNN_STATUS_SUCCESS) report(layer, status_);
  }
  /// A refusal is remembered; what has failed need not fail the next time.
  bool lasts() const { return status_ == CUDNN_STATUS_SUCCESS || is_refusal(status_); }

  /// Prepares for the layer's sequences. False if cuDNN does not compute the layer, or not of these lengths.
  bool prepare(cudnnHandle_t handle, const RnnLayer& layer) {
    if (status_ != CUDNN_STATUS_SUCCESS) return false;
    if (!rnn_.set_lengths(layer)) return of_lengths_ == CUDNN_STATUS_SUCCESS;
    cudnnStatus_t status = rnn_.set_sequences(layer);
    for (const cudnnForwardMode_t mode : {CUDNN_FWD_MODE_INFERENCE, CUDNN_FWD_MODE_TRAINING})
      if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnGetRNNTempSpaceSizes(handle, rnn_.cell, mode, rnn_.x, &work_bytes_[mode], &reserve_bytes_);
    return settle(layer, status);
  }
  int64_t reserve_bytes() const { return static_cast<int64_t>(reserve_bytes_); }

  bool forward(cudnnHandle_t handle, const RnnLayer& layer) {
    const cudnnForwardMode_t mode = layer.reserve_space ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE;
    const Inputs in(layer);
    const Scratch<char> parameters(bytes_of(parameter_bytes_)), work(bytes_of(work_bytes_[mode]));
    gather(layer, parameters);
    const cudnnStatus_t status =
        cudnnRNNForward(handle, rnn_.cell, mode, nullptr, rnn_.x, in.x, rnn_.y, layer.y, rnn_.state, in.h, layer.h,
                        rnn_.state, in.c, layer.c, parameter_bytes_, parameters, work_bytes_[mode], work,
                        static_cast<size_t>(layer.reserve_bytes), layer.reserve_space);
    return accept(layer, status, "cudnnRNNForward");
  }

  bool backward(cudnnHandle_t handle, const RnnLayer& layer) {
    const size_t work_bytes = work_bytes_[CUDNN_FWD_MODE_TRAINING];
    const Inputs in(layer);
    const int64_t states = Inputs::states(layer);
    const Aligned grad_y(layer.grad_y, layer.total * layer.directions * layer.hidden, layer.dtype),
        grad_h(layer.grad_h, states, layer.dtype), grad_c(layer.grad_c, states, layer.dtype);
    const Scratch<char> parameters(bytes_of(parameter_bytes_)), work(bytes_of(work_bytes));
    gather(layer, parameters);
    // cuDNN overwrites the reserve space, which a graph that is replayed reads again.
    const bool copies = layer.retain || capturing();
    const Scratch<char> copy(copies ? layer.reserve_bytes : 0);
    const auto reserve_bytes = static_cast<size_t>(layer.reserve_bytes);
    if (copies)
      CUDA_CHECK(cudaMemcpyAsync(copy, layer.reserve_space, reserve_bytes, cudaMemcpyDeviceToDevice, stream()));
    void* const reserve_space = copies ? static_cast<void*>(copy) : layer.reserve_space;
    const cudnnStatus_t status =
        cudnnRNNBackwardData_v8(handle, rnn_.cell, nullptr, rnn_.y, layer.y, grad_y, rnn_.x, layer.grad_x, rnn_.state,
                                in.h, grad_h, layer.grad_first_h, rnn_.state, in.c, grad_c, layer.grad_first_c,
                                parameter_bytes_, parameters, work_bytes, work, reserve_bytes, reserve_space);
    if (!accept(layer, status, "cudnnRNNBackwardData_v8")) return false;
    Copies results;
    for (int d = 0; d < layer.directions; ++d)
      for (int p = 0; p < RnnLayer::kParameters; ++p)
        if (void* const to = layer.grad_parameters[d][p])
          results.add(parameters + places_[d][p].first, to, layer.dtype, places_[d][p].numel);
    if (results.empty()) return true;
    // They take the place of the parameters, which have been read. cuDNN adds to what is there.
    CUDA_CHECK(cudaMemsetAsync(parameters, 0, parameter_bytes_, stream()));
    CUDNN_CHECK(cudnnRNNBackwardWeights_v8(handle, rnn_.cell, CUDNN_WGRAD_MODE_ADD, nullptr, rnn_.x, in.x, rnn_.state,
                                           in.h, rnn_.y, layer.y, parameter_bytes_, parameters, work_bytes, work,
                                           reserve_bytes, reserve_space));
    results.run();
    return true;
  }

 private:
  /// Of a parameter within the buffer: its first byte, and elements.
  struct Place {
    int64_t first = 0, numel = 0;
  };

  /// cuDNN has a matrix and a bias for each gate, of the input first and then of the state. Those of all gates must be
  /// one after the other, as in our parameters; otherwise the layer is refused.
  cudnnStatus_t find_places(cudnnHandle_t handle, const RnnLayer& layer) {
    cudnnStatus_t status = cudnnGetRNNWeightSpaceSize(handle, rnn_.cell, &parameter_bytes_);
    const TensorDescriptor matrix, bias;
    const int gates = static_cast<int>(gate_count(layer.kind));
    const auto add = [&](Place& place, const void* at, int64_t numel) {
      // Of a buffer that begins at nullptr, an address is a distance.
      const auto first = static_cast<int64_t>(reinterpret_cast<uintptr_t>(at));
      if (place.numel == 0) place.first = first;
      const bool follows = first == place.first + place.numel * size_of(layer.dtype);
      place.numel += numel;
      return follows;
    };
    for (int d = 0; d < layer.directions; ++d)
      for (int gate = 0; gate < 2 * gates && status == CUDNN_STATUS_SUCCESS; ++gate) {
        void *matrix_at = nullptr, *bias_at = nullptr;
        status = cudnnGetRNNWeightParams(handle, rnn_.cell, d, parameter_bytes_, nullptr, gate, matrix, &matrix_at,
                                         bias, &bias_at);
        const bool of_state = gate >= gates;
        const int64_t columns = of_state ? layer.hidden : layer.in;
        auto& places = places_[d];
        if (status == CUDNN_STATUS_SUCCESS &&
            (!add(places[RnnLayer::kWeightIh + of_state], matrix_at, layer.hidden * columns) ||
             (has_bias(layer) && !add(places[RnnLayer::kBiasIh + of_state], bias_at, layer.hidden))))
          status = CUDNN_STATUS_NOT_SUPPORTED;
      }
    return status;
  }

  void gather(const RnnLayer& layer, char* parameters) const {
    Copies copies;
    for (int d = 0; d < layer.directions; ++d)
      for (int p = 0; p < RnnLayer::kParameters; ++p)
        if (const void* const from = layer.parameters[d][p])
          copies.add(from, parameters + places_[d][p].first, layer.dtype, places_[d][p].numel);
    copies.run();
  }

  /// What cuDNN says of the lengths that are set: false if it does not compute the layer of them. A refusal is
  /// remembered, if reporting it is no Error; what has failed is asked for again.
  bool settle(const RnnLayer& layer, cudnnStatus_t status) {
    of_lengths_ = status;
    if (status == CUDNN_STATUS_SUCCESS) return true;
    rnn_.clear_lengths();
    report(layer, status);
    if (is_refusal(status)) rnn_.set_lengths(layer);
    return false;
  }
  /// False if cuDNN has refused the call, before it has written anything.
  bool accept(const RnnLayer& layer, cudnnStatus_t status, const char* call) {
    if (is_refusal(status)) return settle(layer, status);
    dnn_check(status, call);
    return true;
  }

  static int64_t bytes_of(size_t bytes) { return std::max<int64_t>(static_cast<int64_t>(bytes), 1); }

  RnnDescriptors rnn_;
  cudnnStatus_t status_, of_lengths_ = CUDNN_STATUS_SUCCESS;
  size_t parameter_bytes_ = 0, reserve_bytes_ = 0;
  size_t work_bytes_[2] = {};  // by cudnnForwardMode_t
  std::array<Place, RnnLayer::kParameters> places_[2];
};

using Key = PlanKey<5>;
struct LayerPlans : Plans<std::tuple_size_v<Key>, Plan> {
  LayerPlans() : Plans(kMaxPlans) {}
};

/// Returns true if cuDNN, which takes sizes as int and limits the number of steps, can be asked for the layer at all.
bool is_describable(const RnnLayer& layer) {
  constexpr int64_t kMaxSteps = (1 << 16) - 1, kMaxSize = std::numeric_limits<int>::max();
  // A graph that is replayed might read lengths from the host's memory, which later calls change.
  if (capturing() && layer.sizes) return false;
  return layer.steps <= kMaxSteps && layer.in <= kMaxSize && layer.rows <= kMaxSize / (layer.directions * layer.hidden);
}

/// Returns f(plan, handle) for the plan that is prepared for the layer, or `refused` if cuDNN does not compute it.
template <class R, class F>
R with_plan(const RnnLayer& layer, R refused, const F& f) {
  if (!is_describable(layer)) return refused;
  const RelaxedCaptureGuard guard(capturing());  // a new plan or its first run may load kernels
  const cudnnHandle_t handle = DnnHandle::get();
  const bool tf32 = layer.dtype == kFloat32 && layer.precision == MatmulPrecision::kHigh;
  Key key{
      layer.kind | static_cast<int64_t>(layer.dtype) << 8 | tf32 << 16 | has_bias(layer) << 17 | layer.directions << 18,
      layer.in, layer.hidden};
  auto& plans = of_this_thread<LayerPlans>();
  if (capturing()) {  // replays may read the lengths from the plan: it becomes one that no other call sets them in
    Key of_lengths = key;
    of_lengths[3] = layer.rows, of_lengths[4] = layer.steps;
    plans.rename(key, of_lengths);
    key = of_lengths;
  }
  Plan& plan = plans.get(key, handle, layer, tf32);
  return plan.prepare(handle, layer) ? f(plan, handle) : refused;
}

}  // namespace

int64_t cudnn_rnn_workspace(const RnnLayer& layer) {
  return with_plan(layer, int64_t{-1}, [](const Plan& plan, cudnnHandle_t) { return plan.reserve_bytes(); });
}

bool cudnn_rnn(const RnnLayer& layer, bool backward) {
  return with_plan(layer, false, [&](Plan& plan, cudnnHandle_t handle) {
    return backward ? plan.backward(handle, layer) : plan.forward(handle, layer);
  });
}

}  // namespace reel::cuda
