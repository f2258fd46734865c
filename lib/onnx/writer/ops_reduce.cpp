#include "lib/base/lazy.h"
#include "lib/onnx/writer/emitter.h"

// Reductions, scans and order.
namespace reel::onnx::writer {
namespace {

/// ReduceSum takes its dimensions as an input, the others as an attribute.
Name reduced(Emitter& e, const std::string& type, const Name& x) {
  std::vector<int64_t> dims;
  for (int64_t d = 0, bits = e.integer("dims"); bits >> d; ++d)
    if (bits >> d & 1) dims.push_back(d);
  const bool keep = e.flag("keepdim");
  if (dims.empty()) return e.node("Identity", {x});
  if (type == "ReduceSum") return e.node(type.c_str(), {x, e.ints(dims)}, {{"keepdims", keep}});
  return e.node(type.c_str(), {x}, {{"axes", dims}, {"keepdims", keep}});
}
void sum(Emitter& e) { e.set(reduced(e, "ReduceSum", e.in(0))); }
void mean(Emitter& e) { e.set(reduced(e, "ReduceMean", e.in(0))); }
void prod(Emitter& e) { e.set(reduced(e, "ReduceProd", e.in(0))); }
/// Extremes of bools and bytes as int32.
void extreme(Emitter& e, const char* type) {
  const DType dtype = e.dtype(0), wide = dtype == kBool || dtype == kUInt8 ? kInt32 : dtype;
  e.set(e.cast(reduced(e, type, e.cast(e.in(0), dtype, wide)), wide, dtype));
}
void max(Emitter& e) { extreme(e, "ReduceMax"); }
void min(Emitter& e) { extreme(e, "ReduceMin"); }

void position(Emitter& e, const char* type) {
  if (!e.rank(0)) return e.set(e.constant(full({}, int64_t{0}, {.device = kCPU})));
  const DType dtype = e.dtype(0), wide = is_floating_point(dtype) ? dtype : kInt32;
  e.is(type, {e.cast(e.in(0), dtype, wide)}, {{"axis", e.integer("dim")}, {"keepdims", e.flag("keepdim")}});
}

void softmax(Emitter& e, const char* type) {
  if (e.rank(0)) return e.is(type, {e.in(0)}, {{"axis", e.integer("dim")}});
  e.set(e.squeezed(e.node(type, {e.unsqueezed(e.in(0), {0})}, {{"axis", 0}}), {0}));
}

void cumsum(Emitter& e) {
  if (!e.rank(0)) return e.is("Identity", {e.in(0)});
  e.is("CumSum", {e.in(0), e.constant(full({}, e.integer("dim"), {.dtype = kInt64, .device = kCPU}))});
}

/// The first k in order: values and positions.
void ranked(Emitter& e) {
  const DType dtype = e.dtype(0), wide = is_floating_point(dtype) || dtype == kInt64 ? dtype : kInt64;
  Name x = e.cast(e.in(0), dtype, wide);
  const bool number = !e.rank(0);
  if (number) x = e.unsqueezed(x, {0});
  const Names found = e.nodes("TopK", {x, e.sizes({e.number("k")}, "k")}, 2,
                              {{"axis", e.integer("dim")}, {"largest", e.flag("descending")}, {"sorted", 1}});
  for (size_t i = 0; i < 2; ++i) {
    const Name y = number ? e.squeezed(found[i], {0}) : found[i];
    e.set(i ? y : e.cast(y, wide, dtype), i);
  }
}

}  // namespace

const EmitTable& reduction_ops() {
  static constinit Lazy<EmitTable> table;
  return table.get([] {
    return EmitTable{
        {"sum", sum},
        {"mean", mean},
        {"prod", prod},
        {"amax", max},
        {"amin", min},
        {"any", max},
        {"all", min},
        {"argmax", [](Emitter& e) { position(e, "ArgMax"); }},
        {"argmin", [](Emitter& e) { position(e, "ArgMin"); }},
        {"softmax", [](Emitter& e) { softmax(e, "Softmax"); }},
        {"log_softmax", [](Emitter& e) { softmax(e, "LogSoftmax"); }},
        {"cumsum", cumsum},
        {"sort", ranked},
        {"argsort", ranked},
        {"topk", ranked},
    };
  });
}

}  // namespace reel::onnx::writer
