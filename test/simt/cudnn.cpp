// A stand-in for cuDNN's recurrent layers: the functions that cuda/dnn_recurrence.cu uses, with the real library's
// checks of arguments and its order of gates and parameters. As there, gradients of parameters are added to what is in
// their place and need what those of the data have made of the reserve, which then serves no second time.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cudnn.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "test/simt/device.h"
#include "test/simt/dnn.h"
#include "test/simt/simt.h"
#include "test/simt/streams.h"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};
struct cudnnTensorStruct {
  cudnnDataType_t type;
  std::vector<int> sizes, strides;
};
struct cudnnRNNStruct {
  cudnnRNNMode_t mode;
  cudnnDataType_t type;
  bool has_bias;
  int directions;
  int64_t in, hidden;
  cudnnMathType_t math;

  int gates() const { return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1; }
  int64_t columns(int id) const { return id < gates() ? in : hidden; }
  // Where a matrix and a bias are, in elements: all matrices of a direction, those of the next one, then all biases.
  int64_t matrix(int direction, int id) const {
    const int64_t of_state = std::max(id - gates(), 0), of_input = id - of_state;
    return hidden * (direction * gates() * (in + hidden) + of_input * in + of_state * hidden) + id * gap();
  }
  int64_t bias(int direction, int id) const {
    return directions * (gates() * hidden * (in + hidden) + 2 * gates() * gap()) +
           hidden * (2 * direction * gates() + id) + id * gap();
  }
  int64_t parameters() const { return bias(directions, 0) - (has_bias ? 0 : 2 * directions * gates() * hidden); }

 private:
  static int64_t gap() { return simt::dnn_behaves("apart") ? 8 : 0; }
};
struct cudnnRNNDataStruct {
  cudnnDataType_t type;
  int64_t columns = 0, total = 0;
  std::vector<int> lengths;
  std::vector<int64_t> first;  // row of each step
};

namespace {

using Layer = cudnnRNNStruct;
using Sequences = cudnnRNNDataStruct;

thread_local char reason[256];  // of the last refusal
cudnnStatus_t refuse(const char* why, cudnnStatus_t status = CUDNN_STATUS_BAD_PARAM) {
  std::snprintf(reason, sizeof reason, "%s", why);
  return status;
}
#define REFUSE_IF(condition) \
  if (condition) return refuse(#condition)

size_t size_of(cudnnDataType_t type) { return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_FLOAT ? 4 : 2; }
template <class F>
void with_type(cudnnDataType_t type, const F& f) {
  switch (type) {
    case CUDNN_DATA_HALF: return f(__half(), float());
    case CUDNN_DATA_BFLOAT16: return f(__nv_bfloat16(), float());
    case CUDNN_DATA_FLOAT: return f(float(), float());
    default: return f(double(), double());
  }
}

/// For each row of each direction the reserve has, in blocks of `hidden`, the gates and an LSTM's c or a GRU's product
/// within its third gate; later the gates' gradients. Before them is how often it was used.
int64_t blocks(const Layer& layer) { return layer.gates() + (layer.gates() > 1); }
size_t reserve_bytes(const Layer& layer, const Sequences& x) {
  const int64_t elements = x.total * layer.directions * blocks(layer) * layer.hidden;
  return sizeof(int64_t) + static_cast<size_t>(elements) * size_of(layer.type);
}
size_t work_bytes(const Sequences& x, cudnnForwardMode_t mode) {
  return static_cast<size_t>(x.total + (mode == CUDNN_FWD_MODE_TRAINING ? 1000 : 0)) * 8;
}

/// What a call gets, its sequences' data included.
struct Call {
  Layer layer;
  Sequences x;
  const void *x_data = nullptr, *hx = nullptr, *cx = nullptr, *parameters = nullptr;
  void *y_data = nullptr, *hy = nullptr, *cy = nullptr, *reserve = nullptr;
  const void *dy = nullptr, *dhy = nullptr, *dcy = nullptr;
  void *dx = nullptr, *dhx = nullptr, *dcx = nullptr, *dparameters = nullptr;
  void* work = nullptr;
  size_t work_size = 0;
};

/// One direction of one call. T: of data in memory, W: that is computed in.
template <class T, class W>
struct Direction {
  const Call& call;
  int d;
  const Layer& layer = call.layer;
  int64_t hidden = layer.hidden, gates = layer.gates(), width = layer.directions * hidden;

  const T* matrix(int id) const { return static_cast<const T*>(call.parameters) + layer.matrix(d, id); }
  W bias(int id, int64_t i) const {
    return layer.has_bias ? W(static_cast<const T*>(call.parameters)[layer.bias(d, id) + i]) : W(0);
  }
  const T* x(int64_t at) const { return static_cast<const T*>(call.x_data) + at * layer.in; }
  T* y(int64_t at) const { return static_cast<T*>(call.y_data) + at * width + d * hidden; }
  /// Block b of a row's part of the reserve.
  T* kept(int64_t at, int64_t b) const {
    char* const begin = static_cast<char*>(call.reserve) + sizeof(int64_t);
    return reinterpret_cast<T*>(begin) + ((at * layer.directions + d) * blocks(layer) + b) * hidden;
  }
  template <class P>
  P* state(P* all, size_t row) const {
    return all + (d * call.x.lengths.size() + row) * static_cast<size_t>(hidden);
  }
  W first(const void* all, size_t row, int64_t i) const {
    return all ? W(state(static_cast<const T*>(all), row)[i]) : W(0);
  }
  /// visit(row of the data, the one before or -1) for the steps of a sequence, in the direction's order.
  template <class Visit>
  void walk(size_t row, bool back, const Visit& visit) const {
    const int n = call.x.lengths[row];
    const auto place = [&](int i) { return call.x.first[size_t(d ? n - 1 - i : i)] + int64_t(row); };
    for (int k = 0; k < n; ++k) {
      const int i = back ? n - 1 - k : k;
      visit(place(i), i ? place(i - 1) : -1);
    }
  }
  W h_before(size_t row, int64_t before, int64_t i) const {
    return before < 0 ? first(call.hx, row, i) : W(y(before)[i]);
  }
  W c_before(size_t row, int64_t before, int64_t i) const {
    return before < 0 ? first(call.cx, row, i) : W(kept(before, 4)[i]);
  }
  static W sigmoid(W z) { return 1 / (1 + std::exp(-z)); }

  void forward(size_t row) const {
    std::vector<W> c(static_cast<size_t>(hidden));
    for (int64_t i = 0; i < hidden; ++i) c[size_t(i)] = first(call.cx, row, i);
    walk(row, false, [&](int64_t at, int64_t before) {
      std::vector<W> h(static_cast<size_t>(hidden));
      for (int64_t i = 0; i < hidden; ++i) h[size_t(i)] = h_before(row, before, i);
      for (int64_t i = 0; i < hidden; ++i) {
        W of_x[4], of_h[4], out[5];
        for (int g = 0; g < gates; ++g) {
          of_x[g] = bias(g, i), of_h[g] = bias(int(gates) + g, i);
          for (int64_t k = 0; k < layer.in; ++k) of_x[g] += W(matrix(g)[i * layer.in + k]) * W(x(at)[k]);
          for (int64_t k = 0; k < hidden; ++k) of_h[g] += W(matrix(int(gates) + g)[i * hidden + k]) * h[size_t(k)];
        }
        W result;
        if (layer.mode == CUDNN_LSTM) {
          for (int g : {0, 1, 3}) out[g] = sigmoid(of_x[g] + of_h[g]);
          out[2] = std::tanh(of_x[2] + of_h[2]);
          out[4] = c[size_t(i)] = out[1] * c[size_t(i)] + out[0] * out[2];
          result = out[3] * std::tanh(out[4]);
        } else if (layer.mode == CUDNN_GRU) {
          for (int g : {0, 1}) out[g] = sigmoid(of_x[g] + of_h[g]);
          out[2] = std::tanh(of_x[2] + out[0] * of_h[2]);
          out[3] = of_h[2];
          result = (1 - out[1]) * out[2] + out[1] * h[size_t(i)];
        } else {
          const W sum = of_x[0] + of_h[0];
          result = out[0] = layer.mode == CUDNN_RNN_TANH ? std::tanh(sum) : std::max(sum, W(0));
        }
        y(at)[i] = T(result);
        for (int64_t b = 0; call.reserve && b < blocks(layer); ++b) kept(at, b)[i] = T(out[b]);
      }
      if (call.hy) std::copy_n(y(at), hidden, state(static_cast<T*>(call.hy), row));
    });
    for (int64_t i = 0; call.cy && i < hidden; ++i) state(static_cast<T*>(call.cy), row)[i] = T(c[size_t(i)]);
  }

  void backward_data(size_t row, std::vector<W>& dx) const {
    std::vector<W> dh(static_cast<size_t>(hidden)), dc(dh);
    for (int64_t i = 0; i < hidden; ++i)
      dh[size_t(i)] = first(call.dhy, row, i), dc[size_t(i)] = first(call.dcy, row, i);
    walk(row, true, [&](int64_t at, int64_t before) {
      std::vector<W> of_gates(static_cast<size_t>(gates * hidden)), of_hidden(of_gates);
      for (int64_t i = 0; i < hidden; ++i) {
        const W g = dh[size_t(i)] + W(static_cast<const T*>(call.dy)[at * width + d * hidden + i]);
        W kept_here[5], grad[4], direct = 0;
        for (int64_t b = 0; b < blocks(layer); ++b) kept_here[b] = W(kept(at, b)[i]);
        const auto [a, b, e, o, last] = kept_here;
        if (layer.mode == CUDNN_LSTM) {
          const W tanh_c = std::tanh(last), gc = dc[size_t(i)] + g * o * (1 - tanh_c * tanh_c);
          grad[0] = gc * e * a * (1 - a), grad[1] = gc * c_before(row, before, i) * b * (1 - b);
          grad[2] = gc * a * (1 - e * e), grad[3] = g * tanh_c * o * (1 - o);
          dc[size_t(i)] = gc * b;
        } else if (layer.mode == CUDNN_GRU) {
          grad[2] = g * (1 - b) * (1 - e * e);
          grad[0] = grad[2] * o * a * (1 - a);
          grad[1] = g * (h_before(row, before, i) - e) * b * (1 - b);
          direct = g * b;
        } else {
          grad[0] = layer.mode == CUDNN_RNN_TANH ? g * (1 - a * a) : a > 0 ? g : W(0);
        }
        for (int64_t gate = 0; gate < gates; ++gate) {
          const bool reset = layer.mode == CUDNN_GRU && gate == 2;
          of_gates[size_t(gate * hidden + i)] = grad[gate];
          of_hidden[size_t(gate * hidden + i)] = reset ? grad[2] * a : grad[gate];
        }
        dh[size_t(i)] = direct;
      }
      for (int64_t gate = 0; gate < gates; ++gate)
        for (int64_t i = 0; i < hidden; ++i) {
          const W from_x = of_gates[size_t(gate * hidden + i)], from_h = of_hidden[size_t(gate * hidden + i)];
          for (int64_t k = 0; k < layer.in; ++k)
            dx[size_t(at * layer.in + k)] += from_x * W(matrix(int(gate))[i * layer.in + k]);
          for (int64_t k = 0; k < hidden; ++k) dh[size_t(k)] += from_h * W(matrix(int(gates + gate))[i * hidden + k]);
          kept(at, gate)[i] = T(from_x);
          if (layer.mode == CUDNN_GRU && gate == 2) kept(at, 3)[i] = T(from_h);
        }
    });
    for (int64_t i = 0; i < hidden; ++i) {
      if (call.dhx) state(static_cast<T*>(call.dhx), row)[i] = T(dh[size_t(i)]);
      if (call.dcx) state(static_cast<T*>(call.dcx), row)[i] = T(dc[size_t(i)]);
    }
  }

  /// Adds up all sequences' gradients of one gate's parameters.
  void backward_parameters(int id) const {
    const int64_t columns = layer.columns(id), gate = id % gates;
    const bool of_state = id >= gates;
    std::vector<W> of_matrix(static_cast<size_t>(hidden * columns)), of_bias(static_cast<size_t>(hidden));
    for (size_t row = 0; row < call.x.lengths.size(); ++row)
      walk(row, false, [&](int64_t at, int64_t before) {
        const T* const grads = kept(at, of_state && layer.mode == CUDNN_GRU && gate == 2 ? 3 : gate);
        for (int64_t i = 0; i < hidden; ++i) {
          of_bias[size_t(i)] += W(grads[i]);
          for (int64_t k = 0; k < columns; ++k)
            of_matrix[size_t(i * columns + k)] += W(grads[i]) * (of_state ? h_before(row, before, k) : W(x(at)[k]));
        }
      });
    const auto add = [&](int64_t first, const std::vector<W>& sums) {
      T* to = static_cast<T*>(call.dparameters) + first;
      for (const W& sum : sums) *to = T(W(*to) + sum), ++to;
    };
    add(layer.matrix(d, id), of_matrix);
    if (layer.has_bias) add(layer.bias(d, id), of_bias);
  }
};

/// Writes the number of a use of the reserve to its begin, beside the precision.
void mark_reserve(const Call& call, int64_t use) {
  const int64_t mark = 16 * use + call.layer.math;
  std::memcpy(call.reserve, &mark, sizeof mark);
}
/// Takes the reserve from the use before to this one.
void use_reserve(const Call& call, int64_t use) {
  int64_t mark;
  std::memcpy(&mark, call.reserve, sizeof mark);
  if (mark != 16 * (use - 1) + call.layer.math)
    simt::die("cuDNN's reserve is used in the wrong order, or in another precision: %lld",
              static_cast<long long>(mark));
  mark_reserve(call, use);
}

void run_forward(const Call& call) {
  if (call.reserve) mark_reserve(call, 1);
  with_type(call.layer.type, [&](auto type, auto wide) {
    for (int d = 0; d < call.layer.directions; ++d)
      for (size_t row = 0; row < call.x.lengths.size(); ++row)
        Direction<decltype(type), decltype(wide)>{call, d}.forward(row);
  });
}
void run_backward_data(const Call& call) {
  use_reserve(call, 2);
  with_type(call.layer.type, [&](auto type, auto wide) {
    std::vector<decltype(wide)> dx(static_cast<size_t>(call.x.total * call.layer.in));
    for (int d = 0; d < call.layer.directions; ++d)
      for (size_t row = 0; row < call.x.lengths.size(); ++row)
        Direction<decltype(type), decltype(wide)>{call, d}.backward_data(row, dx);
    auto* to = static_cast<decltype(type)*>(call.dx);
    for (const auto& value : dx) *to++ = decltype(type)(value);
  });
}
void run_backward_parameters(const Call& call) {
  use_reserve(call, 3);
  with_type(call.layer.type, [&](auto type, auto wide) {
    for (int d = 0; d < call.layer.directions; ++d)
      for (int id = 0; id < 2 * call.layer.gates(); ++id)
        Direction<decltype(type), decltype(wide)>{call, d}.backward_parameters(id);
  });
}

/// As kernels with vectors may want it.
bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

/// Queues a call, which overwrites its workspace.
cudnnStatus_t start(cudnnHandle_t handle, Call call, void (*run)(const Call&),
                    const char* function = __builtin_FUNCTION()) {
  for (const void* data : {call.hx, call.cx, call.dy, call.dhy, call.dcy}) REFUSE_IF(!aligned(data));
  if (simt::refuse_while_capturing() != cudaSuccess)  // a first run loads kernels and makes events
    return refuse("a stream is being captured", CUDNN_STATUS_EXECUTION_FAILED_CUDART);
  const auto work = [run, call = std::move(call)] {
    std::memset(call.work, 0x7f, call.work_size);
    run(call);
  };
  const cudaError_t status = simt::enqueue(handle->stream, work, nullptr, function);
  return status == cudaSuccess ? CUDNN_STATUS_SUCCESS : refuse("the stream", CUDNN_STATUS_EXECUTION_FAILED_CUDART);
}

/// What all functions check.
cudnnStatus_t check(cudnnHandle_t handle, const Layer* layer, const int32_t* device_lengths, const Sequences* x,
                    const void* x_data, const Sequences* y, const void* y_data, const cudnnTensorStruct* h,
                    const cudnnTensorStruct* c, const void* parameters, size_t parameter_bytes, const void* work,
                    size_t bytes, const void* reserve, size_t reserve_size, cudnnForwardMode_t mode) {
  REFUSE_IF(!handle || !layer || !x || !y || !x_data || !y_data || !parameters || !work);
  REFUSE_IF(device_lengths);  // which is how it is used here
  REFUSE_IF(!aligned(x_data) || !aligned(y_data) || !aligned(parameters));
  REFUSE_IF(x->type != layer->type || y->type != layer->type || x->columns != layer->in);
  REFUSE_IF(y->columns != layer->directions * layer->hidden || y->lengths != x->lengths);
  for (const cudnnTensorStruct* state : {h, c}) {
    const int rows = static_cast<int>(x->lengths.size()), hidden = static_cast<int>(layer->hidden);
    REFUSE_IF(!state || state->type != layer->type);
    REFUSE_IF(state->sizes != std::vector({layer->directions, rows, hidden}));
    REFUSE_IF(state->strides != std::vector({rows * hidden, hidden, 1}));
  }
  REFUSE_IF(parameter_bytes < static_cast<size_t>(layer->parameters()) * size_of(layer->type));
  REFUSE_IF(bytes < work_bytes(*x, mode));
  const bool training = mode == CUDNN_FWD_MODE_TRAINING;
  REFUSE_IF(training && (!reserve || reserve_size < reserve_bytes(*layer, *x)));
  for (const auto& [data, size] :
       {std::pair{parameters, parameter_bytes}, {work, bytes}, {reserve, training ? reserve_size : 0}})
    if (size && !simt::find_block(data, size)) simt::die("cuDNN gets a buffer of %zu bytes that has fewer", size);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

bool simt::dnn_layers() { return !dnn_behaves("0"); }

extern "C" {

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (CUDNN_STATUS_CATEGORY(status)) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "CUDNN_STATUS_INTERNAL_ERROR";
  }
}
void cudnnGetLastErrorString(char* message, size_t size) { std::snprintf(message, size, "%s", reason); }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (simt::refuse_while_capturing() != cudaSuccess) return CUDNN_STATUS_NOT_INITIALIZED;
  *handle = new cudnnContext;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

#define OWNED(Name, Handle)                                                                                  \
  cudnnStatus_t cudnnCreate##Name(Handle* made) { return *made = new Struct##Name{}, CUDNN_STATUS_SUCCESS; } \
  cudnnStatus_t cudnnDestroy##Name(Handle made) { return delete made, CUDNN_STATUS_SUCCESS; }
using StructTensorDescriptor = cudnnTensorStruct;
using StructRNNDescriptor = cudnnRNNStruct;
using StructRNNDataDescriptor = cudnnRNNDataStruct;
OWNED(TensorDescriptor, cudnnTensorDescriptor_t)
OWNED(RNNDescriptor, cudnnRNNDescriptor_t)
OWNED(RNNDataDescriptor, cudnnRNNDataDescriptor_t)
#undef OWNED

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int dims,
                                         const int* sizes, const int* strides) {
  REFUSE_IF(!tensor || dims < 3 || std::any_of(sizes, sizes + dims, [](int size) { return size < 1; }));
  *tensor = {type, {sizes, sizes + dims}, {strides, strides + dims}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t layer, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t mode,
                                       cudnnRNNBiasMode_t bias, cudnnDirectionMode_t directions,
                                       cudnnRNNInputMode_t input, cudnnDataType_t type, cudnnDataType_t precision,
                                       cudnnMathType_t math, int32_t in, int32_t hidden, int32_t projected,
                                       int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags) {
  if (simt::dnn_behaves("0")) return refuse("SIMT_DNN=0", CUDNN_STATUS_NOT_SUPPORTED);
  REFUSE_IF(!layer || in < 1 || hidden < 1 || layers != 1 || projected != hidden || dropout);
  REFUSE_IF(algorithm != CUDNN_RNN_ALGO_STANDARD || input != CUDNN_LINEAR_INPUT);
  REFUSE_IF(flags != CUDNN_RNN_PADDED_IO_DISABLED);
  REFUSE_IF(bias != CUDNN_RNN_NO_BIAS && bias != CUDNN_RNN_DOUBLE_BIAS);
  const bool half = size_of(type) == 2;
  REFUSE_IF(half ? math != CUDNN_TENSOR_OP_MATH : math != CUDNN_FMA_MATH && math != CUDNN_DEFAULT_MATH);
  if (precision != (type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT))
    return refuse("the precision", CUDNN_STATUS_NOT_SUPPORTED);
  *layer = {mode, type, bias == CUDNN_RNN_DOUBLE_BIAS, directions == CUDNN_BIDIRECTIONAL ? 2 : 1, in, hidden, math};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t sequences, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int longest, int rows, int columns,
                                        const int* lengths, void* padding) {
  constexpr int kMost = 0xffff;
  REFUSE_IF(!sequences || longest < 1 || rows < 1 || columns < 1 || longest > kMost || padding);
  REFUSE_IF(layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED);
  REFUSE_IF(!std::is_sorted(lengths, lengths + rows, std::greater<>()));
  REFUSE_IF(lengths[0] != longest || lengths[rows - 1] < 1);
  *sequences = {type, columns, 0, {lengths, lengths + rows}, {}};
  for (int t = 0; t < longest; ++t) {
    sequences->first.push_back(sequences->total);
    sequences->total += std::count_if(lengths, lengths + rows, [&](int length) { return length > t; });
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t layer, size_t* bytes) {
  REFUSE_IF(!handle || !layer || !bytes);
  *bytes = static_cast<size_t>(layer->parameters()) * size_of(layer->type);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t layer, int32_t direction, size_t bytes,
                                      const void* space, int32_t id, cudnnTensorDescriptor_t matrix, void** matrix_at,
                                      cudnnTensorDescriptor_t bias, void** bias_at) {
  REFUSE_IF(!handle || !layer || !matrix || !matrix_at || !bias || !bias_at);
  REFUSE_IF(direction < 0 || direction >= layer->directions || id < 0 || id >= 2 * layer->gates());
  REFUSE_IF(bytes < static_cast<size_t>(layer->parameters()) * size_of(layer->type));
  const auto describe = [&](cudnnTensorStruct& tensor, void** at, int64_t first, int64_t columns) {
    const int rows = static_cast<int>(layer->hidden), width = static_cast<int>(columns);
    tensor = {layer->type, {1, rows, width}, {rows * width, width, 1}};
    *at = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(space) + uintptr_t(first) * size_of(layer->type));
  };
  *bias_at = nullptr;
  describe(*matrix, matrix_at, layer->matrix(direction, id), layer->columns(id));
  if (layer->has_bias) describe(*bias, bias_at, layer->bias(direction, id), 1);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t layer, cudnnForwardMode_t mode,
                                        cudnnRNNDataDescriptor_t x, size_t* work, size_t* reserve) {
  if (simt::dnn_behaves("no_memory")) return refuse("SIMT_DNN=no_memory", CUDNN_STATUS_INTERNAL_ERROR);
  REFUSE_IF(!handle || !layer || !x || x->type != layer->type || x->columns != layer->in);
  *work = work_bytes(*x, mode);
  *reserve = mode == CUDNN_FWD_MODE_TRAINING ? reserve_bytes(*layer, *x) : 0;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t layer, cudnnForwardMode_t mode,
                              const int32_t* device_lengths, cudnnRNNDataDescriptor_t x, const void* x_data,
                              cudnnRNNDataDescriptor_t y, void* y_data, cudnnTensorDescriptor_t h, const void* hx,
                              void* hy, cudnnTensorDescriptor_t c, const void* cx, void* cy, size_t parameter_bytes,
                              const void* parameters, size_t bytes, void* work, size_t reserve_size, void* reserve) {
  if (simt::dnn_behaves("no_forward")) return refuse("SIMT_DNN=no_forward", CUDNN_STATUS_BAD_PARAM);
  const cudnnStatus_t status = check(handle, layer, device_lengths, x, x_data, y, y_data, h, c, parameters,
                                     parameter_bytes, work, bytes, reserve, reserve_size, mode);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  Call call{.layer = *layer, .x = *x, .x_data = x_data, .hx = hx, .cx = cx, .parameters = parameters};
  call.y_data = y_data, call.hy = hy, call.cy = cy, call.work = work, call.work_size = bytes;
  call.reserve = mode == CUDNN_FWD_MODE_TRAINING ? reserve : nullptr;
  return start(handle, std::move(call), run_forward);
}

cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t layer, const int32_t* device_lengths,
                                      cudnnRNNDataDescriptor_t y, const void* y_data, const void* dy,
                                      cudnnRNNDataDescriptor_t x, void* dx, cudnnTensorDescriptor_t h, const void* hx,
                                      const void* dhy, void* dhx, cudnnTensorDescriptor_t c, const void* cx,
                                      const void* dcy, void* dcx, size_t parameter_bytes, const void* parameters,
                                      size_t bytes, void* work, size_t reserve_size, void* reserve) {
  if (simt::dnn_behaves("no_backward")) return refuse("SIMT_DNN=no_backward", CUDNN_STATUS_NOT_SUPPORTED);
  REFUSE_IF(!dy || !dx);
  const cudnnStatus_t status = check(handle, layer, device_lengths, x, dx, y, y_data, h, c, parameters, parameter_bytes,
                                     work, bytes, reserve, reserve_size, CUDNN_FWD_MODE_TRAINING);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  Call call{.layer = *layer, .x = *x, .x_data = nullptr, .hx = hx, .cx = cx, .parameters = parameters};
  call.y_data = const_cast<void*>(y_data), call.reserve = reserve, call.work = work, call.work_size = bytes;
  call.dy = dy, call.dhy = dhy, call.dcy = dcy, call.dx = dx, call.dhx = dhx, call.dcx = dcx;
  return start(handle, std::move(call), run_backward_data);
}

cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t layer, cudnnWgradMode_t mode,
                                         const int32_t* device_lengths, cudnnRNNDataDescriptor_t x, const void* x_data,
                                         cudnnTensorDescriptor_t h, const void* hx, cudnnRNNDataDescriptor_t y,
                                         const void* y_data, size_t parameter_bytes, void* parameters, size_t bytes,
                                         void* work, size_t reserve_size, void* reserve) {
  if (mode != CUDNN_WGRAD_MODE_ADD) return refuse("the mode", CUDNN_STATUS_NOT_SUPPORTED);
  const cudnnStatus_t status = check(handle, layer, device_lengths, x, x_data, y, y_data, h, h, parameters,
                                     parameter_bytes, work, bytes, reserve, reserve_size, CUDNN_FWD_MODE_TRAINING);
  if (status != CUDNN_STATUS_SUCCESS) return status;
  Call call{.layer = *layer, .x = *x, .x_data = x_data, .hx = hx};
  call.y_data = const_cast<void*>(y_data), call.reserve = reserve, call.work = work, call.work_size = bytes;
  call.dparameters = parameters;
  return start(handle, std::move(call), run_backward_parameters);
}

}  // extern "C"
