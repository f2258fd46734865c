#include "lib/cpu/kernels.h"

// The entries of the table that are compiled for this instruction set.
namespace reel::cpu::REEL_ISA {

void install_attention(KernelTable& table);
void install_unary(KernelTable& table);
void install_unary_grad(KernelTable& table);
void install_binary(KernelTable& table);
void install_binary_grad(KernelTable& table);
void install_compare(KernelTable& table);
void install_copy(KernelTable& table);
void install_reduce(KernelTable& table);
void install_scan(KernelTable& table);
void install_segment(KernelTable& table);
void install_softmax(KernelTable& table);
void install_crf(KernelTable& table);
void install_ctc(KernelTable& table);
void install_gemm(KernelTable& table);
void install_cell(KernelTable& table);
void install_depthwise(KernelTable& table);
void install_distance(KernelTable& table);
void install_embedding(KernelTable& table);
void install_grid_sample(KernelTable& table);
void install_index(KernelTable& table);
void install_integer(KernelTable& table);
void install_norm(KernelTable& table);
void install_pool(KernelTable& table);
void install_random(KernelTable& table);
void install_recurrence(KernelTable& table);
void install_resize(KernelTable& table);
void install_sampled(KernelTable& table);
void install_ternary(KernelTable& table);
void install_update(KernelTable& table);

void install(KernelTable& table) {
  install_attention(table);
  install_unary(table);
  install_unary_grad(table);
  install_binary(table);
  install_binary_grad(table);
  install_compare(table);
  install_copy(table);
  install_reduce(table);
  install_scan(table);
  install_segment(table);
  install_softmax(table);
  install_crf(table);
  install_ctc(table);
  install_gemm(table);
  install_cell(table);
  install_depthwise(table);
  install_distance(table);
  install_embedding(table);
  install_grid_sample(table);
  install_index(table);
  install_integer(table);
  install_norm(table);
  install_pool(table);
  install_random(table);
  install_recurrence(table);
  install_resize(table);
  install_sampled(table);
  install_ternary(table);
  install_update(table);
}

}  // namespace reel::cpu::REEL_ISA
