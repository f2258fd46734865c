#pragma once
#include "lib/kernels/table.h"

// The CUDA half of the table of kernels: each family of kernels fills in its entries.
namespace reel::cuda {

void install_blocks(Backend& table);  // copy_blocks
void install_cell(Backend& table);
void install_conv(Backend& table);  // convolve, unfold, fold
void install_copy(Backend& table);  // copy, fill, where
void install_crf(Backend& table);
void install_ctc(Backend& table);
void install_gemm(Backend& table);
void install_index(Backend& table);  // find_out_of_range … embedding_bag
void install_linalg(Backend& table);
void install_norm(Backend& table);
void install_pointwise(Backend& table);  // unary … compare
void install_pool(Backend& table);       // pooling and resampling
void install_random(Backend& table);
void install_recurrence(Backend& table);
void install_reduce(Backend& table);  // reduce, arg_reduce
void install_scan(Backend& table);
void install_segment(Backend& table);
void install_softmax(Backend& table);  // softmax…, cross_entropy…
void install_sort(Backend& table);     // count_nonzero, nonzero, sort … search
void install_update(Backend& table);

/// The table, for kernels that call others: the current device stays what it is.
const Backend& table();
/// Backend::gemm, for float16 and bfloat16 as well.
void gemm(const Gemm& gemm);

}  // namespace reel::cuda
