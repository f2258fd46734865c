#include "lib/autograd/grad_accumulator.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>

#include "lib/autograd/gradient_ops.h"
#include "lib/autograd/tape.h"
#include "lib/core/per_thread.h"
#include "lib/kernels/copy.h"
#include "lib/kernels/gemm.h"
#include "lib/kernels/reduce.h"

namespace reel {

Tensor given_gradient(const Tensor& given, const GradMetadata& target, const char* op, const char* what) {
  REEL_CHECK(given.shape() == target.shape, op, ": ", what, " of shape ", given.shape(), " for a tensor of shape ",
             target.shape);
  const Tensor grad = given.to(target.dtype);
  if (target.shape.empty()) return grad.to(target.device);
  REEL_CHECK(grad.device() == target.device, op, ": ", what, " on ", grad.device(), " for a tensor on ", target.device);
  return grad;
}

/// Factors of a product that wait to be packed: tensors of the graph's, whose storage has not changed since.
struct WaitingProduct {
  Tensor g, x;
  uint32_t g_version, x_version;
};

/// Packs of rows, each a tensor of which the first rows are filled, and gradients of a GPU that wait for each other.
struct PendingRows {
  Tensor g_rows, x_rows;  // [capacity, out], [capacity, in]: factors of a product, `products` rows are filled
  int64_t products = 0;
  std::vector<WaitingProduct> waiting;  // small products of a GPU's, that are packed together, by one kernel
  int64_t waiting_rows = 0;
  Tensor values;             // [capacity, …]: rows to be added at ids, `count` are filled
  std::vector<int64_t> ids;  // those of them that the host has
  Tensor unread_ids;  // [capacity]: those of the last `unread` rows, on a GPU; one read synchronizes once for all
  int64_t count = 0, unread = 0;
  bool sparse = true;                       // all rows are for a sparse gradient
  std::vector<Tensor> addends;              // small gradients that are added together, by two kernels
  std::vector<Tensor> row_ids, row_values;  // rows that are added to a dense gradient together
  PendingRows* next = nullptr;              // in the free list
};

namespace {

constexpr int64_t kMaxRows = 512, kMaxBytes = 8 << 20;  // of one pack
constexpr int64_t kEnoughRows = 16;                     // on a GPU, which multiplies them in about the time of one

// Of the small gradients and rows of one tensor, on a GPU: a kernel for each of them would take the time of its start.
constexpr size_t kMostWaiting = 32;
constexpr int64_t kSmallNumel = 4096;
// As many cost no more when they are added one by one.
constexpr size_t kFewAddends = 2, kFewRows = 3;

// The thread's unused objects, with the capacity of their vectors: a backward pass in the steady state allocates none.
struct FreeList {
  PendingRows* head = nullptr;
  ~FreeList() {
    while (head) delete std::exchange(head, head->next);
  }
};
constinit thread_local PerThread<FreeList> free_list;

const View& filled(const Tensor& tensor, Scalar value) {
  kernels_of(tensor).fill(view_of(tensor), value);
  return view_of(tensor);
}

// `rows` rows of a pack from row `first` on.
View rows_of(const View& pack, int64_t rows, int64_t first = 0) {
  View part = pack;
  const int64_t row = pack.shape[0] ? pack.numel / pack.shape[0] : 0;
  part.shape[0] = rows;
  part.numel = rows * row;
  part.data = static_cast<char*>(pack.data) + first * row * size_of(pack.dtype);
  return part;
}

// Copies n rows behind the first `have` rows of a pack, which grows as a vector does.
void append(Tensor& pack, int64_t have, const View& rows, int64_t n, const GradMetadata& target) {
  const KernelTable& kernels = kernels_on(target.device);
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

bool may_wait(const Tensor& g) {
  const View& view = view_of(g);
  return !view.host && view.contiguous && view.numel > 0 && view.numel <= kSmallNumel;
}

// Whether it may be a parameter's memory, which a hook may change as soon as that has its gradient.
bool may_change(const Tensor& x) {
  const TensorImpl* impl = TensorImpl::of(x);
  if (impl->in_place == InPlace::kSaved) return false;  // only of a parameter is the view itself saved
  return impl->in_place != InPlace::kRecorded || (impl->base ? impl->base : impl)->requires_grad;
}

uint32_t version_of(const Tensor& x) { return TensorImpl::of(x)->storage->version.load(std::memory_order_relaxed); }
const View& unchanged(const Tensor& x, uint32_t version) {
  REEL_CHECK(version_of(x) == version, "backward: a tensor of shape ", x.shape(),
             " was changed in place before the gradient of a weight that it was multiplied by was complete");
  return view_of(x);
}

// The most rows of a pack of products.
int64_t capacity_of(const GradMetadata& target) {
  const int64_t row_bytes = std::max<int64_t>((target.shape[0] + target.shape[1]) * size_of(target.dtype), 1);
  return std::clamp<int64_t>(kMaxBytes / row_bytes, 8, kMaxRows);
}

// The copies of g and x to the ends of their packs, which have room for them.
void pack_product(const GradMetadata& target, PendingRows& rows, const View& g, const View& x, BlockCopy* blocks) {
  if (!rows.g_rows.defined()) {
    rows.g_rows = make_tensor({capacity_of(target), target.shape[0]}, target.dtype, target.device);
    rows.x_rows = make_tensor({capacity_of(target), target.shape[1]}, target.dtype, target.device);
  }
  const int64_t n = g.shape[0];
  const auto block = [&](const View& from, const Tensor& pack) {
    const View to = rows_of(view_of(pack), n, rows.products);
    return whole_copy(from.data, to.dtype, to.data, to.dtype, to.numel);
  };
  blocks[0] = block(g, rows.g_rows), blocks[1] = block(x, rows.x_rows);
  rows.products += n;
}

// Packs the products that wait, which are none afterwards.
void pack_waiting(const GradMetadata& target, PendingRows& rows) {
  if (rows.waiting.empty()) return;
  std::array<BlockCopy, 2 * kMostWaiting> blocks;
  size_t count = 0;
  for (const WaitingProduct& p : rows.waiting) {
    pack_product(target, rows, unchanged(p.g, p.g_version), unchanged(p.x, p.x_version), &blocks[count]);
    count += 2;
  }
  kernels_on(target.device).copy_blocks(std::span(blocks).first(count));
  rows.waiting.clear(), rows.waiting_rows = 0;
}

// Contiguous tensors as one, of this shape.
Tensor packed(std::span<const Tensor> parts, const Shape& shape) {
  const Tensor whole = make_tensor(shape, parts[0].dtype(), parts[0].device());
  std::array<BlockCopy, kMostWaiting + 1> blocks;
  auto* to = static_cast<char*>(view_of(whole).data);
  for (size_t i = 0; i < parts.size(); ++i) {
    const View& part = view_of(parts[i]);
    blocks[i] = whole_copy(part.data, part.dtype, to, part.dtype, part.numel);
    to += part.numel * size_of(part.dtype);
  }
  kernels_of(whole).copy_blocks(std::span(blocks).first(parts.size()));
  return whole;
}

// The ids of all rows.
const std::vector<int64_t>& read_ids(PendingRows& pending) {
  if (pending.unread) {
    const View ids = rows_of(view_of(pending.unread_ids), pending.unread);
    const Tensor host = make_tensor({pending.unread}, kInt64);
    copy_between(pending.unread_ids.device(), ids, kCPU, view_of(host));
    const int64_t* first = host.data<int64_t>();
    pending.ids.insert(pending.ids.end(), first, first + pending.unread);
    pending.unread = 0;
  }
  return pending.ids;
}

bool may_overwrite(const Tensor& tensor) { return is_exclusive(tensor) && view_of(tensor).contiguous; }

// dense, zero if nothing was added, copied if another handle shares it: fit to be written to.
Tensor& owned(Tensor& dense, const GradMetadata& target) {
  if (!dense.defined()) {
    dense = make_tensor(target.shape, target.dtype, target.device);
    filled(dense, 0);
  } else if (!may_overwrite(dense)) {
    dense = dense.clone();
  }
  return dense;
}

void add_one(Tensor& dense, const Tensor& g) {
  if (may_overwrite(dense))
    add_views(TensorImpl::of(dense)->device(), view_of(dense), view_of(g), view_of(dense));
  else
    dense = accumulate(dense, g);
}

// dense += all addends, which are none afterwards.
void add_waiting(Tensor& dense, std::vector<Tensor>& addends) {
  if (addends.empty()) return;
  if (dense.defined() && addends.size() <= kFewAddends) {
    for (const Tensor& g : addends) add_one(dense, g);
  } else {
    if (dense.defined()) addends.push_back(dense.contiguous());
    const int64_t numel = view_of(addends[0]).numel;
    const Tensor rows = packed(addends, {static_cast<int64_t>(addends.size()), numel});
    Tensor total = make_tensor(addends[0].shape(), rows.dtype(), rows.device());
    kernels_of(rows).reduce(ReduceOp::kSum, view_of(rows),
                            make_view(view_of(total).data, {1, numel}, {numel, 1}, rows.dtype()));
    dense = std::move(total);
  }
  addends.clear();
}

// dense += the rows that wait, which are none afterwards.
void add_waiting_rows(Tensor& dense, PendingRows& pending, const GradMetadata& target) {
  auto &ids = pending.row_ids, &values = pending.row_values;
  if (ids.empty()) return;
  const KernelTable& kernels = kernels_on(target.device);
  const View& whole = view_of(owned(dense, target));
  if (ids.size() <= kFewRows) {
    for (size_t i = 0; i < ids.size(); ++i) kernels.index_add(whole, 0, view_of(ids[i]), view_of(values[i]));
  } else {
    Shape shape = values[0].shape();
    shape[0] = 0;
    for (const Tensor& list : ids) shape[0] += view_of(list).numel;
    const Tensor all = packed(ids, {shape[0]}), rows = packed(values, shape);
    kernels.index_add(whole, 0, view_of(all), view_of(rows));
  }
  ids.clear(), values.clear();
}

// Distinct sorted ids with the values of equal ids added: the rows themselves where there is nothing to add.
SparseGrad coalesce(PendingRows& pending, Device device) {
  const std::vector<int64_t>& ids = read_ids(pending);
  const int64_t n = pending.count;
  if (pending.values.size(0) == n && may_overwrite(pending.values) &&
      std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end())
    return {tensor(ids, {.device = device}), std::move(pending.values)};
  const View values = rows_of(view_of(pending.values), n);
  const Tensor sorted = make_tensor({n}, kInt64, kCPU), order = make_tensor({n}, kInt64, kCPU);
  const View unsorted = make_view(const_cast<int64_t*>(ids.data()), {n}, {1}, kInt64);
  kernels_on(kCPU).sort(false, unsorted, view_of(sorted), view_of(order));
  std::vector<int64_t> distinct, place(ids.size());
  for (int64_t i = 0; i < n; ++i) {
    const int64_t id = sorted.data<int64_t>()[i];
    if (distinct.empty() || distinct.back() != id) distinct.push_back(id);
    place[static_cast<size_t>(order.data<int64_t>()[i])] = static_cast<int64_t>(distinct.size()) - 1;
  }
  Shape shape = values.shape;
  shape[0] = static_cast<int64_t>(distinct.size());
  SparseGrad rows{tensor(distinct).to(device), make_tensor(shape, values.dtype, device)};
  const Tensor places = tensor(place).to(device);
  kernels_on(device).index_add(filled(rows.values, 0), 0, view_of(places), values);
  return rows;
}

}  // namespace

// ---- the life of pending rows ---------------------------------------------------------------------------------------

PendingRows& GradAccumulator::pending() {
  if (!pending_) {
    PendingRows*& head = free_list->head;
    pending_ = head ? std::exchange(head, head->next) : new PendingRows;
  }
  return *pending_;
}

void GradAccumulator::recycle_pending() {
  PendingRows* pending = std::exchange(pending_, nullptr);
  pending->g_rows.reset(), pending->x_rows.reset(), pending->unread_ids.reset(), pending->values.reset();
  pending->ids.clear(), pending->addends.clear(), pending->row_ids.clear(), pending->row_values.clear();
  pending->waiting.clear();
  pending->products = pending->waiting_rows = pending->unread = pending->count = 0;
  pending->sparse = true;
  pending->next = std::exchange(free_list->head, pending);
}

void GradAccumulator::free_pending() { delete std::exchange(pending_, nullptr); }

// ---- adding ---------------------------------------------------------------------------------------------------------

Tensor& GradAccumulator::own_dense(const GradMetadata& target) { return owned(dense_, target); }

void GradAccumulator::add(Tensor g) {
  if (!dense_.defined()) {
    dense_ = std::move(g);
  } else if (grad_mode) {
    dense_ = accumulate(dense_, g);
  } else if (may_wait(g)) {
    std::vector<Tensor>& addends = pending().addends;
    if (addends.size() == kMostWaiting) add_waiting(dense_, addends);
    addends.push_back(std::move(g));
  } else {
    add_one(dense_, g);
  }
}

void GradAccumulator::multiply(const GradMetadata& target, const View& g, const View& x, const Tensor& column_sums) {
  double beta = 1;
  if (!dense_.defined()) {
    dense_ = make_tensor(target.shape, target.dtype, target.device);
    beta = 0;
  } else {
    own_dense(target);
  }
  const int64_t out = g.shape[1], in = x.shape[1];
  kernels_on(target.device)
      .gemm({.dtype = target.dtype,
             .trans_a = true,
             .m = out,
             .n = in,
             .k = g.shape[0],
             .a = g.data,
             .lda = out,
             .b = x.data,
             .ldb = in,
             .c = view_of(dense_).data,
             .ldc = in,
             .beta = beta,
             .a_sums = column_sums.defined() ? view_of(column_sums).data : nullptr});
}

void GradAccumulator::multiply_pending(const GradMetadata& target) {
  PendingRows& rows = *pending_;
  if (!rows.products && rows.waiting.size() == 1) {  // there is nothing to pack it with
    const WaitingProduct p = std::move(rows.waiting[0]);
    rows.waiting.clear(), rows.waiting_rows = 0;
    return multiply(target, unchanged(p.g, p.g_version), unchanged(p.x, p.x_version));
  }
  pack_waiting(target, rows);
  if (!rows.products) return;
  multiply(target, rows_of(view_of(rows.g_rows), rows.products), rows_of(view_of(rows.x_rows), rows.products));
  rows.products = 0;
}

Tensor GradAccumulator::add_product(const GradMetadata& target, const Tensor& g_rows, const Tensor& x_rows,
                                    bool column_sums) {
  const View &g = view_of(g_rows), &x = view_of(x_rows);
  const int64_t n = g.shape[0], out = g.shape[1], in = x.shape[1];
  REEL_CHECK(target.shape == Shape({out, in}) && target.dtype == g.dtype && target.dtype == x.dtype,
             "backward: a gradient of ", g.dtype, " ", Shape{out, in}, " for a weight of ", target.dtype, " ",
             target.shape, "; was it replaced after the forward pass?");
  if (n == 0) {  // zeros are a gradient, too
    own_dense(target);
    return {};
  }
  const int64_t capacity = capacity_of(target);
  const bool on_cpu = target.device == kCPU;
  if (n >= (on_cpu ? capacity / 4 : std::min(kEnoughRows, capacity))) {  // large enough by itself
    Tensor sums;
    if (column_sums && !on_cpu) sums = make_tensor({out}, target.dtype, target.device);
    multiply(target, g, x, sums);
    return sums;
  }
  PendingRows& rows = pending();
  if (rows.products + rows.waiting_rows + n > capacity) multiply_pending(target);
  if (!on_cpu && may_wait(g_rows) && may_wait(x_rows) && !may_change(g_rows) && !may_change(x_rows)) {
    if (rows.waiting.size() == kMostWaiting) pack_waiting(target, rows);
    rows.waiting.push_back({g_rows, x_rows, version_of(g_rows), version_of(x_rows)}), rows.waiting_rows += n;
    return {};
  }
  copy_product(target, g, x);
  return {};
}

void GradAccumulator::copy_product(const GradMetadata& target, const View& g, const View& x) {
  std::array<BlockCopy, 2> blocks;
  pack_product(target, *pending_, g, x, blocks.data());
  kernels_on(target.device).copy_blocks(blocks);
}

void GradAccumulator::add_rows(const GradMetadata& target, const Tensor& ids, Tensor values, bool sparse) {
  if (!sparse && target.device != kCPU) {  // at once, so that the host need not read the ids
    if (!may_wait(values) || !view_of(ids).contiguous)
      return kernels_on(target.device).index_add(view_of(own_dense(target)), 0, view_of(ids), view_of(values));
    PendingRows& rows = pending();
    if (rows.row_ids.size() == kMostWaiting) add_waiting_rows(dense_, rows, target);
    rows.row_ids.push_back(ids), rows.row_values.push_back(std::move(values));
    return;
  }
  const Tensor list = ids.contiguous();
  const int64_t n = list.numel();
  if (list.device() == kCPU && n > 0 && (!pending_ || !pending_->count) && may_overwrite(values)) {
    PendingRows& rows = pending();
    rows.ids.assign(list.data<int64_t>(), list.data<int64_t>() + n);
    rows.values = std::move(values), rows.count = n, rows.sparse = sparse;
    return;
  }
  if (list.device() == kCPU || n == 0)
    return append_rows(target, {view_of(list).as<const int64_t>(), static_cast<size_t>(n)}, view_of(values), sparse);
  PendingRows& rows = pending();
  append(rows.values, rows.count, view_of(values), n, target);
  append(rows.unread_ids, rows.unread, view_of(list), n, target);
  rows.count += n, rows.unread += n, rows.sparse = rows.sparse && sparse;
}

void GradAccumulator::append_rows(const GradMetadata& target, std::span<const int64_t> ids, const View& values,
                                  bool sparse) {
  const int64_t n = static_cast<int64_t>(ids.size());
  if (n == 0) {
    if (!sparse) own_dense(target);
    return;
  }
  PendingRows& rows = pending();
  read_ids(rows);  // before these, since values follow one another in the order of their ids
  append(rows.values, rows.count, values, n, target);
  rows.ids.insert(rows.ids.end(), ids.begin(), ids.end());
  rows.count += n, rows.sparse = rows.sparse && sparse;
}

void GradAccumulator::add_region(const GradMetadata& target, int64_t offset, const Strides& strides, const Tensor& g) {
  Shape shape = view_of(g).shape;
  for (int d = 0; d < shape.size(); ++d)
    if (strides[d] == 0) shape[d] = 1;  // the view repeats these elements: their gradients add up
  const Tensor part = sum_to(g, shape).to(target.dtype);
  const View& whole = view_of(own_dense(target));
  const View place = make_view(whole.as<char>() + offset * size_of(target.dtype), shape, strides, target.dtype);
  add_views(target.device, place, view_of(part), place);
}

bool GradAccumulator::take_pending(GradAccumulator& other, const GradMetadata& target) {
  // Gradients that wait may be tensors of the program's, which it may change after this backward pass.
  add_waiting_rows(other.dense_, *other.pending_, target);
  add_waiting(other.dense_, other.pending_->addends);
  pack_waiting(target, *other.pending_);
  if (!other.pending_->products && !other.pending_->count) {
    other.recycle_pending();
    return true;
  }
  if (!pending_) {
    std::swap(pending_, other.pending_);
    return true;
  }
  PendingRows &from = *other.pending_, &to = *pending_;
  if (from.products && !to.g_rows.defined()) {
    std::swap(from.g_rows, to.g_rows), std::swap(from.x_rows, to.x_rows), std::swap(from.products, to.products);
  } else if (from.products) {
    if (to.products + to.waiting_rows + from.products > capacity_of(target)) multiply_pending(target);
    copy_product(target, rows_of(view_of(from.g_rows), from.products), rows_of(view_of(from.x_rows), from.products));
  }
  if (from.count) append_rows(target, read_ids(from), rows_of(view_of(from.values), from.count), from.sparse);
  other.recycle_pending();
  return !to.values.defined() || view_of(to.values).numel * size_of(target.dtype) < kMaxBytes;
}

void GradAccumulator::record_current_stream() const {
  if (!pending_) return;
  for (const Tensor* pack : {&pending_->g_rows, &pending_->x_rows, &pending_->unread_ids, &pending_->values})
    if (pack->defined()) reel::record_current_stream(*pack);
}

// ---- the sum --------------------------------------------------------------------------------------------------------

FinalGrad GradAccumulator::take(const GradMetadata& target, bool sparse_wanted) {
  FinalGrad sum;
  if (pending_) {
    multiply_pending(target);
    add_waiting_rows(dense_, *pending_, target);
    add_waiting(dense_, pending_->addends);
    if (pending_->count) {
      if (sparse_wanted && pending_->sparse && !dense_.defined()) {
        sum.sparse = coalesce(*pending_, target.device);
      } else {
        own_dense(target);
        Tensor ids = pending_->unread_ids;  // as they are, if the host has none of them
        if (pending_->unread != pending_->count) ids = tensor(read_ids(*pending_)).to(target.device);
        kernels_on(target.device)
            .index_add(view_of(dense_), 0, rows_of(view_of(ids), pending_->count),
                       rows_of(view_of(pending_->values), pending_->count));
      }
    }
    recycle_pending();
  }
  sum.dense = std::move(dense_);
  return sum;
}

void add_sparse(Tensor& dense, SparseGrad& sparse, const SparseGrad& more, const Shape& shape) {
  if (!dense.defined() && !sparse.ids.defined()) {
    sparse = more;
  } else if (!dense.defined()) {
    GradAccumulator both;
    const GradMetadata target{more.values.dtype(), more.values.device(), shape};
    both.add_rows(target, sparse.ids, sparse.values, true);
    both.add_rows(target, more.ids, more.values, true);
    sparse = both.take(target, true).sparse;
  } else {
    if (!may_overwrite(dense)) dense = no_grad([&] { return dense.clone(); });
    kernels_of(dense).index_add(view_of(dense), 0, view_of(more.ids), view_of(more.values));
    TensorImpl::of(dense)->storage->changed();
  }
}

}  // namespace reel
