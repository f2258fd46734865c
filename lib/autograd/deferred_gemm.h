// DeferredGemm collects the products that a weight's gradient consists of until one GEMM computes their sum.
#pragma once
#include <cstdint>
#include <vector>

#include "lib/autograd/grad_metadata.h"
#include "lib/device/kernels/copy.h"
#include "reel/tensor.h"

namespace reel {

/// Computes dense += gᵀ x for contiguous g [n, out] and x [n, in] of the target's dtype, by one GEMM. If `column_sums`
/// [out] is defined, the GEMM also stores the sums of g's columns there.
void add_gemm(Tensor& dense, const GradMetadata& target, const View& g, const View& x, const Tensor& column_sums = {});

/// A DeferredGemm is a sum of products gᵀ x that is still to be computed. A weight that is used at a thousand places
/// would get a thousand outer products, each of them a pass over memory of the weight's size. Instead the rows of all g
/// are packed, and so are those of all x: the sum is the product of the two packs. Small factors on a GPU are kept and
/// packed later, all of them by one kernel.
class DeferredGemm {
 public:
  /// Returns how many rows g and x must have to be multiplied at once, since they would gain nothing by waiting.
  static int64_t min_rows_of_gemm(const GradMetadata& target);

  bool empty() const { return rows() == 0; }
  /// Defers gᵀ x, for contiguous g and x of fewer rows than that. If the packs have no room for it, what they hold is
  /// first added to `dense`. Small factors on a GPU are not copied: an Error follows if they are changed in place
  /// before pack() or flush_into().
  void add(Tensor& dense, const GradMetadata& target, const Tensor& g, const Tensor& x);
  /// Packs the factors that have not been copied yet.
  void pack(const GradMetadata& target);
  /// Takes over the products of another one, all of which are packed. If the packs have no room for them, what they
  /// hold is first added to `dense`.
  void merge(Tensor& dense, const GradMetadata& target, DeferredGemm& other);
  /// Adds all products to `dense`, and keeps none.
  void flush_into(Tensor& dense, const GradMetadata& target);
  void clear() {
    g_pack_.reset(), x_pack_.reset(), unpacked_.clear();
    packed_rows_ = unpacked_rows_ = 0;
  }
  /// Marks the packs as used on the current stream.
  void record_current_stream() const;

 private:
  /// A Factor is a tensor of the graph's, and the version that its storage had when the product was deferred.
  struct Factor {
    explicit Factor(const Tensor& t);
    const View& view() const;  // throws if the storage has changed

    Tensor tensor;
    uint32_t version;
  };
  struct Product {
    Factor g, x;
  };

  int64_t rows() const { return packed_rows_ + unpacked_rows_; }
  void append(const GradMetadata& target, const View& g, const View& x, BlockCopy* copies);
  void append_now(const GradMetadata& target, const View& g, const View& x);

  Tensor g_pack_, x_pack_;  // [capacity, out], [capacity, in]
  int64_t packed_rows_ = 0, unpacked_rows_ = 0;
  std::vector<Product> unpacked_;
};

}  // namespace reel
