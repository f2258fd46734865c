#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "lib/autograd/row_group.h"
#include "lib/device/kernels/copy.h"
#include "lib/tensor/tensor_impl.h"
#include "reel/tensor.h"

// Many tensors as the rows of one, and back. The gradients take the same way in one step each: views of one gradient
// go out, gradients come together in one, and between a gather_rows and a scatter_rows nothing is copied.
namespace reel::detail {

/// The rows of all parts, [n_i, …] of one dtype, device and trailing shape, in one tensor [sum of n_i, …]. Of a single
/// part it is that part; of parts that are adjacent rows of one storage, in this order, a view. An Error if there is no
/// part, or the parts differ in anything but the number of their rows. With a group, part i is an argument of its call
/// i, and gets a gradient in those passes in which that call has a part.
Tensor gather_rows(std::span<const Tensor> parts, RowGroup* group = nullptr);

/// The inverse: views of `whole` with counts[i] rows each, which must add up to whole.size(0). A part that is all of
/// whole is whole itself. The others cannot be changed in place while recording is on, nor later if it was on when they
/// were made: what one part's owner does must not reach the others'. With a group, part i is that one of the `results`
/// of its call i.
std::vector<Tensor> scatter_rows(const Tensor& whole, std::span<const int64_t> counts, RowGroup* group = nullptr,
                                 RowGroup::Results results = RowGroup::kAllResults);

/// The numbers of a vector as tensors without dimensions, under the same conditions. Number i is the result of the
/// group's call i.
std::vector<Tensor> scatter_numbers(const Tensor& vector, RowGroup* group);

/// Lets the arguments of a group's calls have a gradient only where one of a result arrives that depends on them.
/// `gathers` are the nodes of gather_rows, and wholes[k] is the result number k of all calls, not scattered yet.
void relate_results(RowGroup* group, std::span<Node* const> gathers, std::span<const Tensor> wholes);

// ---- what other ops are made of -------------------------------------------------------------------------------------

/// The sizes of consecutive parts: those listed or, without a list, `each` as often as it fits, and what is left.
struct PartSizes {
  const int64_t* list = nullptr;
  int64_t each = 1;
  int64_t operator()(size_t i, int64_t left) const { return list ? list[i] : each < left ? each : left; }
};
/// `count` consecutive parts of x along its first dimension, which it must have: views like those of narrow, or with
/// `drop_dim`, for parts of size 1, like those of select. Recorded under the name `op`, for up to 65,535 parts as one
/// node. The sizes must add up to x.size(0).
std::vector<Tensor> parts_of(const char* op, const Tensor& x, size_t count, PartSizes sizes, bool drop_dim = false);

/// Records a y that has these parts, of which some need a gradient, along its first dimension one after the other or,
/// with `drop_dim`, each at an index.
void record_whole(const char* op, const Tensor& y, std::span<const Tensor> parts, bool drop_dim = false,
                  RowGroup* group = nullptr);

/// Writes tensors into each of `rows` rows of y, one after the other, in few copies: those that lie one after the other
/// already go together, and on a GPU all of them: a launch takes longer than many copies.
class Joiner {
 public:
  /// `strides` are those of a tensor's place in y.
  Joiner(const Tensor& y, int64_t rows, const Strides& strides)
      : kernels_(kernels_of(y)),
        strides_(strides),
        dtype_(view_of(y).dtype),
        rows_(rows),
        step_(rows ? view_of(y).numel / rows * size_of(dtype_) : 0),
        together_(!view_of(y).host),
        to_(view_of(y).as<char>()) {}
  /// Writes the next tensor; `from` must live until finish().
  void add(const View& from);
  /// Leaves so many elements of each row as they are.
  void skip(int64_t numel) { to_ += numel * size_of(dtype_); }
  /// To be called after the last.
  void finish() {
    if (!many_.empty()) return finish_many();
    if (count_) kernels_.copy_blocks({blocks_.data(), std::exchange(count_, 0)});
  }

 private:
  void keep();
  void finish_many();
  const KernelTable& kernels_;
  const Strides strides_;
  const DType dtype_;
  const int64_t rows_, step_;
  const bool together_;
  char* to_;
  std::array<BlockCopy, 64> blocks_;
  size_t count_ = 0;
  std::vector<BlockCopy> many_;  // that came before those in blocks_
};

}  // namespace reel::detail
