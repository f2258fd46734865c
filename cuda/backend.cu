#include "cuda/device.h"
#include "cuda/kernels.h"

namespace reel {
namespace cuda {
namespace {

KernelTable make_table() {
  KernelTable table{};
  install_attention(table), install_blocks(table), install_cell(table), install_conv(table), install_copy(table),
      install_crf(table), install_ctc(table), install_gemm(table);
  install_index(table), install_linalg(table), install_norm(table), install_pointwise(table), install_pool(table);
  install_random(table), install_recurrence(table), install_reduce(table), install_rnn_layer(table),
      install_sampled(table), install_scan(table), install_segment(table), install_softmax(table);
  install_sort(table), install_update(table);
  return table;
}

}  // namespace

const KernelTable& table() {
  static const KernelTable table = make_table();
  return table;
}

const KernelTable& CudaRuntime::kernels(int device) {
  use({DeviceType::kCUDA, static_cast<int8_t>(device)});
  return table();
}

constinit CudaRuntime backend;

}  // namespace cuda

DeviceRuntime* cuda_runtime() { return &cuda::backend; }

}  // namespace reel
