#pragma once
#include <list>
#include <span>

#include "lib/cpu/scratch.h"
#include "lib/device/kernels/cell.h"
#include "lib/device/kernels/convolution.h"
#include "lib/device/kernels/gemm.h"
#include "lib/device/kernels/norm.h"
#include "lib/device/kernels/recurrence.h"
#include "lib/device/kernels/table.h"
#include "lib/device/kernels/update.h"

// How kernels that compute in float32 take half types. The head of such a kernel is
//
//   void softmax(bool log, const View& x, const View& y) {
//     if (is_half(x.dtype)) return softmax(log, Widened().in(x), Widened().out(y));
//     …
//
// The copies live until that call returns, and each element of a result is rounded once. Nothing here is inline: the
// files of simd/ include it, and the linker must not mix up what it was compiled for.
namespace reel::cpu {

/// Returns the elements of v, each once: those that a stride of 0 repeats are left out.
View distinct(const View& v);

/// Float32 copies of half operands. What a kernel has written to them is rounded when they are destroyed, but for an
/// exception: copies that could not all be made have not been written to. Operands of other types are passed on as they
/// are.
class Widened {
 public:
  Widened();
  ~Widened();
  Widened(const Widened&) = delete;
  Widened& operator=(const Widened&) = delete;

  const View& in(const View& x);
  const View* in(const View* x);
  const View& out(const View& y);  // all of which is written: the copy begins uninitialised
  const View& in_out(const View& y);

  // Likewise for argument structs, whose dtype becomes float32.
  Cell of(Cell cell);
  Cell of_grad(Cell cell);
  Convolution of(ConvPart wanted, Convolution conv);
  Convolution of_windows(Convolution conv, bool to_columns);  // of unfold, or fold
  Gemm of(Gemm gemm);
  Recurrence of(Recurrence recurrence);
  Recurrence of_grad(Recurrence recurrence);
  // p of each tensor.
  std::span<const Updated> in(std::span<const Updated> tensors);
  std::span<const Updated> in_out(std::span<const Updated> tensors);
  std::span<const Updated> of_update(std::span<const Updated> parameters);  // p, and g

 private:
  enum Role { kScratch = 0, kIn = 1, kOut = 2, kInOut = kIn | kOut };
  struct Operand {
    View half, wide;
    size_t bytes;
    Role role;
  };
  const View& take(const View& half, Role role);
  std::span<const Updated> take(std::span<const Updated> tensors, Role role);
  template <class T>
  void replace(T*& data, DType dtype, int64_t n, Role role);
  template <class T>
  void replace(T*& data, DType dtype, const Shape& shape, const Strides& strides, Role role);

  const int exceptions_;  // that were on their way when it was made
  std::list<Operand, ScratchAllocator<Operand>> operands_;
  ScratchVector<const void*> sources_;
  ScratchVector<void*> targets_;
  ScratchVector<Updated> tensors_;
};

/// An optimizer's step for half p and g, of which only the rows `ids`, if given, are widened.
void update_halves(KernelTable::Update kernel, const void* functor, const View& p, const View& g,
                   const View* const* states, const View* ids);

/// Adds to the n halves of y, in float32, those of rows of `from`, each n halves long.
using AddRows = void (*)(DType dtype, void* y, const void* from, std::span<const int64_t> rows, int64_t n);
/// Adds halves as index_add does: it rounds each slice of y once, or widens all of y where the ids are many.
void index_add_halves(decltype(KernelTable::index_add) kernel, AddRows add_rows, const View& y, int dim,
                      const View& ids, const View& from);

/// Runs the kernel of a norm's gradients, which adds up those of weight and bias in float64, and rounds these.
void norm_grad(void (*kernel)(const Norm&), const Norm& norm);

}  // namespace reel::cpu
