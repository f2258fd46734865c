#include "cuda/kernels.h"
#include "cuda/runtime.h"

namespace reel {
namespace cuda {
namespace {

KernelTable make_table() {
  KernelTable table{};
  table.allocate = [](size_t bytes, void** block) { return allocate(bytes, reinterpret_cast<MemoryBlock**>(block)); };
  install_blocks(table), install_cell(table), install_conv(table), install_copy(table), install_crf(table),
      install_ctc(table), install_gemm(table);
  install_index(table), install_linalg(table), install_norm(table), install_pointwise(table), install_pool(table);
  install_random(table), install_recurrence(table), install_reduce(table), install_scan(table), install_segment(table),
      install_softmax(table);
  install_sort(table), install_update(table);
  return table;
}

}  // namespace

void release_block(void* block) { release(static_cast<MemoryBlock*>(block)); }

const KernelTable& table() {
  static const KernelTable table = make_table();
  return table;
}

}  // namespace cuda

const KernelTable& device_kernels(Device device) {
  cuda::use(device);
  return cuda::table();
}

}  // namespace reel
