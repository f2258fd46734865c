#include "lib/autograd/pending.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "lib/device.h"
#include "lib/kernels/copy.h"
#include "lib/kernels/gemm.h"
#include "lib/scalar.h"
#include "reel/cuda.h"

namespace reel {

/// Packs of rows; kept for reuse by the thread, with their vectors.
struct Pending {
  Tensor g_rows, x_rows;  // [capacity, out], [capacity, in], of which `rows` are filled
  int64_t rows = 0;
  std::vector<int64_t> ids;
  Tensor ids_there;  // [capacity], of which the first `unread` come next: on a GPU, which is waited for once
  Tensor values;     // [capacity, …], of which the first `count` are rows for ids
  int64_t unread = 0, count = 0;
  bool sparse = true;
  Pending* next = nullptr;
};

namespace {

constexpr int64_t kMostRows = 512, kMostBytes = 8 << 20;
constexpr int64_t kEnoughRows = 16;  // on a GPU, which multiplies them in about the time of one

struct Spare {
  Pending* head = nullptr;
  ~Spare() {
    while (head) delete std::exchange(head, head->next);
  }
};
thread_local Spare spare;

Pending& pending_of(GradSlot& slot) {
  if (!slot.pending) {
    slot.pending = spare.head ? std::exchange(spare.head, spare.head->next) : new Pending;
  }
  return *slot.pending;
}
void retire(GradSlot& slot) {
  Pending* pending = std::exchange(slot.pending, nullptr);
  pending->g_rows.reset(), pending->x_rows.reset(), pending->ids_there.reset(), pending->values.reset();
  pending->ids.clear();
  pending->rows = pending->unread = pending->count = 0;
  pending->sparse = true;
  pending->next = std::exchange(spare.head, pending);
}

const View& filled(const Tensor& tensor, Scalar value) {
  backend_of(tensor).fill(view_of(tensor), value);
  return view_of(tensor);
}

// A dense gradient that this slot alone can see: made of zeros, or copied, if need be. An engine-owned buffer.
Tensor& own_dense(GradSlot& slot, const GradShape& target) {
  if (!slot.grad.defined()) {
    slot.grad = make_tensor(target.shape, target.dtype, target.device);
    filled(slot.grad, 0);
  } else if (!is_exclusive(slot.grad) || !slot.grad.is_contiguous()) {
    slot.grad = slot.grad.clone();
  }
  return slot.grad;
}

const View rows_of(const View& pack, int64_t rows, int64_t from = 0) {
  View part = pack;
  const int64_t row = pack.shape[0] ? pack.numel / pack.shape[0] : 0;
  part.shape[0] = rows;
  part.numel = rows * row;
  part.data = static_cast<char*>(pack.data) + from * row * size_of(pack.dtype);
  return part;
}

void multiply(GradSlot& slot, const GradShape& target, const View& g, const View& x, const Tensor& sums = {}) {
  double beta = 1;
  if (!slot.grad.defined()) {
    slot.grad = make_tensor(target.shape, target.dtype, target.device);
    beta = 0;
  } else {
    own_dense(slot, target);
  }
  const int64_t out = g.shape[1], in = x.shape[1];
  backend(target.device)
      .gemm({.dtype = target.dtype,
             .trans_a = true,
             .m = out,
             .n = in,
             .k = g.shape[0],
             .a = g.data,
             .lda = out,
             .b = x.data,
             .ldb = in,
             .c = view_of(slot.grad).data,
             .ldc = in,
             .beta = beta,
             .a_sums = sums.defined() ? view_of(sums).data : nullptr});
}

void flush_products(GradSlot& slot, const GradShape& target) {
  Pending& pending = *slot.pending;
  if (!pending.rows) return;
  multiply(slot, target, rows_of(view_of(pending.g_rows), pending.rows),
           rows_of(view_of(pending.x_rows), pending.rows));
  pending.rows = 0;
}

/// Puts n rows behind the first `have` ones of a pack, which grows.
void append(Tensor& pack, int64_t have, const View& rows, int64_t n, const GradShape& target) {
  const Backend& kernels = backend(target.device);
  const int64_t capacity = pack.defined() ? pack.size(0) : 0;
  if (have + n > capacity) {
    Shape shape = rows.shape;
    shape[0] = std::max(have + n, 2 * capacity);
    Tensor larger = make_tensor(shape, rows.dtype, target.device);
    if (have) kernels.copy(rows_of(view_of(pack), have), rows_of(view_of(larger), have));
    pack = std::move(larger);
  }
  kernels.copy(rows, rows_of(view_of(pack), n, have));
}

/// The ids of all rows.
const std::vector<int64_t>& read_ids(Pending& pending) {
  if (pending.unread) {
    const std::vector<int64_t> more = pending.ids_there.narrow(0, 0, pending.unread).to_vector<int64_t>();
    pending.ids.insert(pending.ids.end(), more.begin(), more.end());
    pending.unread = 0;
  }
  return pending.ids;
}

}  // namespace

void add_grad(GradSlot& slot, Tensor g) {
  if (!slot.grad.defined()) {
    slot.grad = std::move(g);
  } else if (!grad_mode && is_exclusive(slot.grad) && slot.grad.is_contiguous()) {
    const View& sum = view_of(slot.grad);
    const scalar::Add add;
    if (is_half(sum.dtype) && sum.host)  // of which the kernels know no sum
      slot.grad = accumulate(slot.grad, g);
    else
      backend_of(slot.grad).binary[scalar::index_of<scalar::BinaryList, scalar::Add>](&add, sum, view_of(g), sum);
  } else {
    slot.grad = accumulate(slot.grad, g);
  }
}

Tensor add_product(GradSlot& slot, const GradShape& target, const View& g, const View& x, bool sums_wanted) {
  const int64_t n = g.shape[0], out = g.shape[1], in = x.shape[1];
  REEL_CHECK(target.shape == Shape({out, in}) && target.dtype == g.dtype && target.dtype == x.dtype,
             "backward: a gradient of ", g.dtype, " ", Shape{out, in}, " for a weight of ", target.dtype, " ",
             target.shape, "; was it replaced after the forward pass?");
  if (n == 0) {  // zeros are a gradient, too
    own_dense(slot, target);
    return {};
  }
  const int64_t row_bytes = std::max<int64_t>((out + in) * size_of(target.dtype), 1);
  const int64_t capacity = std::clamp<int64_t>(kMostBytes / row_bytes, 8, kMostRows);
  const bool on_cpu = target.device == kCPU;
  if (n >= (on_cpu ? capacity / 4 : std::min(kEnoughRows, capacity))) {  // large enough by itself
    Tensor sums;
    if (sums_wanted && !on_cpu) sums = make_tensor({out}, target.dtype, target.device);
    multiply(slot, target, g, x, sums);
    return sums;
  }
  Pending& pending = pending_of(slot);
  if (!pending.g_rows.defined()) {
    pending.g_rows = make_tensor({capacity, out}, target.dtype, target.device);
    pending.x_rows = make_tensor({capacity, in}, target.dtype, target.device);
  }
  if (pending.rows + n > capacity) flush_products(slot, target);
  const auto block = [&](const View& from, const Tensor& pack) {
    const View to = rows_of(view_of(pack), n, pending.rows);
    return BlockCopy{from.data, to.data, 1, to.numel * size_of(to.dtype), 0, 0};
  };
  const std::array blocks{block(g, pending.g_rows), block(x, pending.x_rows)};
  backend(target.device).copy_blocks(blocks);
  pending.rows += n;
  return {};
}

void add_rows(GradSlot& slot, const GradShape& target, std::span<const int64_t> ids, const View& values, bool sparse) {
  const int64_t n = static_cast<int64_t>(ids.size());
  if (n == 0) {
    if (!sparse) own_dense(slot, target);
    return;
  }
  Pending& pending = pending_of(slot);
  read_ids(pending);
  append(pending.values, pending.count, values, n, target);
  pending.count += n, pending.sparse = pending.sparse && sparse;
  pending.ids.insert(pending.ids.end(), ids.begin(), ids.end());
}

void add_rows(GradSlot& slot, const GradShape& target, const Tensor& ids, const View& values, bool sparse) {
  const Tensor list = ids.contiguous();
  const int64_t n = list.numel();
  if (list.device() == kCPU || n == 0)
    return add_rows(slot, target, {view_of(list).as<const int64_t>(), static_cast<size_t>(n)}, values, sparse);
  Pending& pending = pending_of(slot);
  append(pending.values, pending.count, values, n, target);
  append(pending.ids_there, pending.unread, view_of(list), n, target);
  pending.count += n, pending.unread += n, pending.sparse = pending.sparse && sparse;
}

void add_rows_at_once(GradSlot& slot, const GradShape& target, const View& ids, const View& values) {
  backend(target.device).index_add(view_of(own_dense(slot, target)), 0, ids, values);
}

void use_here(GradSlot& slot) {
  if (!slot.pending) return;
  for (const Tensor* pack :
       {&slot.pending->g_rows, &slot.pending->x_rows, &slot.pending->ids_there, &slot.pending->values})
    if (pack->defined() && pack->device() != kCPU) pack->record_stream(cuda::Stream::current(pack->device().index));
}

bool absorb(GradSlot& held, GradSlot& slot, const GradShape& target) {
  if (!held.pending) {
    std::swap(held.pending, slot.pending);
    return true;
  }
  use_here(held);
  Pending &from = *slot.pending, &to = *held.pending;
  if (from.rows && !to.g_rows.defined()) {
    std::swap(from.g_rows, to.g_rows), std::swap(from.x_rows, to.x_rows), std::swap(from.rows, to.rows);
  } else if (from.rows) {
    add_product(held, target, rows_of(view_of(from.g_rows), from.rows), rows_of(view_of(from.x_rows), from.rows));
  }
  if (from.count) add_rows(held, target, read_ids(from), rows_of(view_of(from.values), from.count), from.sparse);
  retire(slot);
  return !to.values.defined() || view_of(to.values).numel * size_of(target.dtype) < kMostBytes;
}

void add_region(GradSlot& slot, const GradShape& target, int64_t offset, const Strides& strides, const Tensor& g) {
  Shape shape = view_of(g).shape;
  for (int d = 0; d < shape.size(); ++d)
    if (strides[d] == 0) shape[d] = 1;  // the view repeats these elements: their gradients add up
  const Tensor part = sum_to(g, shape).to(target.dtype);
  Tensor& whole = own_dense(slot, target);
  char* first = static_cast<char*>(view_of(whole).data) + offset * size_of(target.dtype);
  if (is_half(target.dtype) && target.device == kCPU) {  // the kernels know no sum of these
    const Tensor region = alias(whole, first, shape, strides);
    backend_of(whole).copy(view_of(accumulate(region, part)), view_of(region));
    return;
  }
  const View region = make_view(first, shape, strides, target.dtype);
  const scalar::Add add;
  backend_of(whole).binary[scalar::index_of<scalar::BinaryList, scalar::Add>](&add, region, view_of(part), region);
}

FinalGrad finish(GradSlot& slot, const GradShape& target, bool sparse_wanted) {
  FinalGrad result;
  if (slot.pending) {
    flush_products(slot, target);
    if (slot.pending->count) {
      const Tensor values = slot.pending->values.narrow(0, 0, slot.pending->count);
      if (sparse_wanted && slot.pending->sparse && !slot.grad.defined()) {
        result.rows = coalesce(read_ids(*slot.pending), values);
      } else {
        own_dense(slot, target);
        const Pending& pending = *slot.pending;
        const Tensor ids = pending.unread == pending.count ? pending.ids_there.narrow(0, 0, pending.count)
                                                           : from(read_ids(*slot.pending)).to(target.device);
        backend(target.device).index_add(view_of(slot.grad), 0, view_of(ids), view_of(values));
      }
    }
    retire(slot);
  }
  result.dense = std::move(slot.grad);
  return result;
}

void clear(GradSlot& slot) {
  slot.grad.reset();
  if (slot.pending) retire(slot);
}

void discard(GradSlot& slot) {
  slot.grad.reset();
  delete std::exchange(slot.pending, nullptr);
}

RowSparse coalesce(const std::vector<int64_t>& ids, const Tensor& values) {
  NoGrad guard;
  std::vector<int64_t> distinct = ids;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::vector<int64_t> place(ids.size());
  for (size_t i = 0; i < ids.size(); ++i)
    place[i] = std::lower_bound(distinct.begin(), distinct.end(), ids[i]) - distinct.begin();
  Shape shape = values.shape();
  shape[0] = static_cast<int64_t>(distinct.size());
  RowSparse rows{from(distinct).to(values.device()), make_tensor(shape, values.dtype(), values.device())};
  const Tensor places = from(place).to(values.device());
  backend_of(values).index_add(filled(rows.values, 0), 0, view_of(places), view_of(values));
  return rows;
}

void accumulate_rows(Tensor& grad, RowSparse& rows, const RowSparse& more, const Shape& shape) {
  if (!grad.defined() && !rows.ids.defined()) {
    rows = more;
  } else if (!grad.defined()) {
    GradSlot slot;
    const GradShape target{more.values.dtype(), more.values.device(), shape};
    for (const RowSparse* part : {static_cast<const RowSparse*>(&rows), &more}) {
      const std::vector<int64_t> ids = part->ids.to_vector<int64_t>();
      add_rows(slot, target, ids, view_of(part->values), true);
    }
    rows = finish(slot, target, true).rows;
  } else {
    if (!is_exclusive(grad) || !grad.is_contiguous()) grad = no_grad([&] { return grad.clone(); });
    backend_of(grad).index_add(view_of(grad), 0, view_of(more.ids), view_of(more.values));
    TensorImpl::of(grad)->storage->changed();
  }
}

}  // namespace reel
