#include "reel/distributed/collectives.h"

#include "lib/distributed/group.h"
#include "reel/autograd.h"

namespace reel::distributed {
namespace {

ProcessGroupImpl& group() { return ProcessGroupImpl::of(default_group()); }

Tensor like(const Tensor& in, const Shape& shape) { return empty(shape, {.dtype = in.dtype(), .device = in.device()}); }

}  // namespace

void all_reduce(const Tensor& tensor, ReduceOp op) { group().all_reduce(tensor, op, Run::kNow).wait(); }
void broadcast(const Tensor& tensor, int root) { group().broadcast(tensor, root, Run::kNow).wait(); }

Tensor all_gather(const Tensor& in) {
  REEL_CHECK(in.defined(), "all_gather: undefined tensor");
  ProcessGroupImpl& g = group();
  Shape shape = in.shape();
  shape.insert(0, g.core->size());
  Tensor out = like(in, shape);
  g.all_gather(out, in, Run::kNow).wait();
  return out;
}

std::vector<Tensor> all_gather_v(const Tensor& in) {
  REEL_CHECK(in.defined() && in.dim() > 0, "all_gather_v: expected a tensor of at least one dimension");
  ProcessGroupImpl& g = group();
  // First how many each rank has.
  const Tensor counts = all_gather(tensor(std::vector<int64_t>{in.size(0)}, {.device = kCPU}));
  std::vector<Tensor> outs;
  for (const int64_t count : counts.to_vector<int64_t>()) {
    Shape shape = in.shape();
    shape[0] = count;
    outs.push_back(like(in, shape));
  }
  g.all_gather_v(outs, in, Run::kNow).wait();
  return outs;
}

Tensor reduce_scatter(const Tensor& in, ReduceOp op) {
  REEL_CHECK(in.defined() && in.dim() > 0, "reduce_scatter: expected a tensor of at least one dimension");
  ProcessGroupImpl& g = group();
  Shape shape = in.shape();
  shape.erase(0);
  Tensor out = like(in, shape);
  g.reduce_scatter(out, in, op, Run::kNow).wait();
  return out;
}

void all_to_all(TensorList outs, TensorList ins) { group().all_to_all(outs, ins, Run::kNow).wait(); }

std::vector<Tensor> gather(const Tensor& in, int root) {
  REEL_CHECK(in.defined(), "gather: undefined tensor");
  ProcessGroupImpl& g = group();
  std::vector<Tensor> outs;
  if (g.core->rank() == root)
    for (int i = 0; i < g.core->size(); ++i) outs.push_back(like(in, in.shape()));
  g.gather(outs, in, root, Run::kNow).wait();
  return outs;
}

void scatter(const Tensor& out, TensorList ins, int root) { group().scatter(out, ins, root, Run::kNow).wait(); }

void send(const Tensor& tensor, int to, int tag) { default_group().send(tensor, to, tag).wait(); }
void recv(const Tensor& tensor, int from, int tag) { default_group().recv(tensor, from, tag).wait(); }
int recv_any(const Tensor& tensor, std::span<const int> from, int tag) {
  return default_group().recv_any(tensor, from, tag).from;
}
void barrier() { default_group().barrier(); }
void monitored_barrier(Milliseconds timeout) { default_group().monitored_barrier(timeout); }
std::string broadcast_object(std::string_view bytes, int root) { return default_group().broadcast_object(bytes, root); }
std::vector<std::string> all_gather_object(std::string_view bytes) { return default_group().all_gather_object(bytes); }

Tensor mean(const Tensor& tensor) {
  REEL_CHECK(tensor.defined(), "mean: undefined tensor");
  const NoGrad guard;
  if (group().core->size() == 1) return tensor.detach();
  Tensor result = tensor.detach().clone();
  all_reduce(result, ReduceOp::kAvg);
  return result;
}

}  // namespace reel::distributed
