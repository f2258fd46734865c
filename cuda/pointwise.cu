#include "cuda/pointwise.h"

#include "cuda/unary.h"
#include "lib/functors/unary.h"

// Puts the pointwise kernels into the table.
namespace reel::cuda {
namespace {

template <class List>
constexpr size_t kSize = std::tuple_size_v<List>;

void install_unary(KernelTable& table) {
  static KernelTable::Unary rows[kSize<functors::UnaryList>];
  static KernelTable::UnaryGrad grads[kSize<functors::UnaryList>];
  fill_math(rows), fill_activation(rows + kSize<functors::MathList>);
  fill_math_grad(grads), fill_activation_grad(grads + kSize<functors::MathList>);
  table.unary = rows;
  table.unary_grad = grads;
}

}  // namespace

void install_pointwise(KernelTable& table) {
  install_unary(table);
  install_binary(table);
  install_binary_grad(table);
  install_ternary(table);
  install_bits(table);
  install_compare(table);
}

}  // namespace reel::cuda
