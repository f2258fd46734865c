#include "lib/cpu/kernels.h"

// The entries of the table that are compiled for this instruction set.
namespace reel::cpu::REEL_ISA {

void install_unary(Backend& table);
void install_unary_grad(Backend& table);
void install_binary(Backend& table);
void install_compare(Backend& table);
void install_reduce(Backend& table);
void install_segment(Backend& table);
void install_softmax(Backend& table);
void install_crf(Backend& table);
void install_ctc(Backend& table);
void install_gemm(Backend& table);
void install_cell(Backend& table);
void install_norm(Backend& table);
void install_pool(Backend& table);
void install_random(Backend& table);
void install_recurrence(Backend& table);
void install_resize(Backend& table);
void install_update(Backend& table);

void install(Backend& table) {
  install_unary(table);
  install_unary_grad(table);
  install_binary(table);
  install_compare(table);
  install_reduce(table);
  install_segment(table);
  install_softmax(table);
  install_crf(table);
  install_ctc(table);
  install_gemm(table);
  install_cell(table);
  install_norm(table);
  install_pool(table);
  install_random(table);
  install_recurrence(table);
  install_resize(table);
  install_update(table);
}

}  // namespace reel::cpu::REEL_ISA
