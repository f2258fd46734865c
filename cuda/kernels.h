#pragma once
#include "lib/device/kernels/table.h"

// The CUDA half of the table of kernels: each family of kernels fills in its entries.
namespace reel::cuda {

void install_attention(KernelTable& table);
void install_blocks(KernelTable& table);  // copy_blocks
void install_cell(KernelTable& table);
void install_conv(KernelTable& table);  // convolve, unfold, fold
void install_copy(KernelTable& table);  // copy, fill, where
void install_crf(KernelTable& table);
void install_ctc(KernelTable& table);
void install_gemm(KernelTable& table);
void install_index(KernelTable& table);  // check_bounds … embedding_bag
void install_linalg(KernelTable& table);
void install_norm(KernelTable& table);
void install_pointwise(KernelTable& table);  // unary … compare
void install_pool(KernelTable& table);       // pooling and resampling
void install_random(KernelTable& table);
void install_recurrence(KernelTable& table);
void install_reduce(KernelTable& table);  // reduce, arg_reduce
void install_rnn_layer(KernelTable& table);
void install_sampled(KernelTable& table);
void install_scan(KernelTable& table);
void install_segment(KernelTable& table);
void install_softmax(KernelTable& table);  // softmax…, cross_entropy…
void install_sort(KernelTable& table);     // count_nonzero, nonzero, sort … search
void install_update(KernelTable& table);

/// The table, for kernels that call others: the current device stays what it is.
const KernelTable& table();
/// KernelTable::gemm, for float16 and bfloat16 as well.
void gemm(const Gemm& gemm);

}  // namespace reel::cuda
