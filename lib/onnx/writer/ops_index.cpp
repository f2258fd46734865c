#include "lib/base/lazy.h"
#include "lib/onnx/writer/emitter.h"

// Ops that look elements up.
namespace reel::onnx::writer {
namespace {

void index_select(Emitter& e) {
  const Name x = e.in(0), ids = e.rank(1) ? e.in(1) : e.unsqueezed(e.in(1), {0});
  e.is("Gather", {x, ids}, {{"axis", e.integer("dim")}});
}
void embedding(Emitter& e) { e.is("Gather", {e.in(0), e.cast(e.in(1), e.dtype(1), kInt64)}, {{"axis", 0}}); }

void embedding_bag(Emitter& e) {
  constexpr int64_t kSumOf = 0, kMeanOf = 2;
  if (e.rank(1) != 2 || e.has(2) || e.flag("padding")) e.fail("bags of different sizes: with offsets or a padding_idx");
  Name rows = e.node("Gather", {e.in(0), e.cast(e.in(1), e.dtype(1), kInt64)}, {{"axis", 0}});
  if (e.has(3)) rows = e.node("Mul", {rows, e.unsqueezed(e.in(3), {2})});
  const int64_t mode = e.integer("mode");
  if (mode == kSumOf) return e.is("ReduceSum", {rows, e.ints({1})}, {{"keepdims", 0}});
  e.is(mode == kMeanOf ? "ReduceMean" : "ReduceMax", {rows}, {{"axes", std::vector<int64_t>{1}}, {"keepdims", 0}});
}

/// With the dimension first, f(x, source) and the order of dimensions put back.
template <class F>
void along(Emitter& e, const F& f) {
  const int64_t dim = e.integer("dim");
  std::vector<int64_t> order;
  for (int64_t d = 0; d < e.rank(0); ++d) order.push_back(d);
  if (dim == 0) return e.set(f(e.in(0), e.in(2)));
  std::swap(order[0], order[static_cast<size_t>(dim)]);
  e.set(e.transposed(f(e.transposed(e.in(0), order), e.transposed(e.in(2), order)), order));
}
void put_slices(Emitter& e, const char* reduction) {
  const Name ids = e.node("Reshape", {e.in(1), e.ints({-1, 1})});
  along(e, [&](const Name& x, const Name& source) {
    return e.node("ScatterND", {x, ids, source}, {{"reduction", reduction}});
  });
}

void gather(Emitter& e) {
  if (!e.rank(0)) return e.is("Identity", {e.in(0)});
  e.is("GatherElements", {e.in(0), e.in(1)}, {{"axis", e.integer("dim")}});
}
void scatter(Emitter& e, const char* reduction) {
  if (e.rank(0))
    return e.is("ScatterElements", {e.in(0), e.in(1), e.in(2)}, {{"axis", e.integer("dim")}, {"reduction", reduction}});
  e.fail("of a 0-d tensor");
}

void one_hot(Emitter& e) {
  const Tensor classes = arange(e.integer("classes"), {.dtype = kInt64, .device = kCPU});
  const Name equal = e.node("Equal", {e.unsqueezed(e.in(0), {-1}), e.constant(classes)});
  e.set(e.cast(equal, kBool, kInt64));
}

}  // namespace

const EmitTable& index_ops() {
  static constinit Lazy<EmitTable> table;
  return table.get([] {
    return EmitTable{
        {"index_select", index_select},
        {"embedding", embedding},
        {"embedding(one call)", embedding},
        {"embedding_bag", embedding_bag},
        {"index_copy", [](Emitter& e) { put_slices(e, "none"); }},
        {"index_add", [](Emitter& e) { put_slices(e, "add"); }},
        {"gather", gather},
        {"scatter", [](Emitter& e) { scatter(e, "none"); }},
        {"scatter_add", [](Emitter& e) { scatter(e, "add"); }},
        {"scatter_mul", [](Emitter& e) { scatter(e, "mul"); }},
        {"one_hot", one_hot},
    };
  });
}

}  // namespace reel::onnx::writer
