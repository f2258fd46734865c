// Writes ops of single elements.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lib/base/lazy.h"
#include "lib/onnx/one_to_one.h"
#include "lib/onnx/writer/emitter.h"

namespace reel::onnx::writer {
namespace {

/// Returns the entry with this name of reel.
template <class List>
const auto& entry(const List& list, std::string_view name) {
  return *std::find_if(std::begin(list), std::end(list), [&](const auto& op) { return op.name == name; });
}

/// Writes the one node that the op is.
void unary(Emitter& e) { e.is(entry(kUnaryOps, e.op()).type, {e.in(0)}); }

/// Formulas of x, in its type.
class X {
 public:
  explicit X(Emitter& e) : e_(e), x_(e.in(0)), dtype_(e.dtype(0)) {}
  operator Name() const { return x_; }
  Name number(double value) const { return e_.scalar(value, dtype_); }
  Name add(const Name& a, const Name& b) const { return e_.node("Add", {a, b}); }
  Name sub(const Name& a, const Name& b) const { return e_.node("Sub", {a, b}); }
  Name mul(const Name& a, const Name& b) const { return e_.node("Mul", {a, b}); }
  Name div(const Name& a, const Name& b) const { return e_.node("Div", {a, b}); }
  Name of(const char* type, const Name& a) const { return e_.node(type, {a}); }
  Name where(const Name& c, const Name& a, const Name& b) const { return e_.node("Where", {c, a, b}); }
  Name less(const Name& a, const Name& b) const { return e_.node("Less", {a, b}); }

 private:
  Emitter& e_;
  const Name x_;
  const DType dtype_;
};

/// The op's result is the formula's.
template <auto formula>
void by(Emitter& e) {
  e.set(formula(X(e), e));
}

Name clip(const Name& x, Emitter& e, double low, double high) {
  const auto bound = [&](double value) { return value == value ? e.scalar(value, e.dtype(0)) : Name(); };
  return e.node("Clip", {x, bound(low), bound(high)});
}
void clamp(Emitter& e) {
  const double low = e.real("low"), high = e.real("high");
  if (low != low && high != high) return e.is("Identity", {e.in(0)});
  e.set(clip(e.in(0), e, low, high));
}

Name softplus(const X& x, const Name& z) { return x.of("Softplus", z); }
Name cdf(const X& x) {
  return x.mul(x.number(0.5), x.add(x.number(1), x.of("Erf", x.mul(x, x.number(0.70710678118654752)))));
}

constexpr auto kTrunc = [](const X& x, Emitter&) {
  return x.where(x.less(x, x.number(0)), x.of("Ceil", x), x.of("Floor", x));
};
constexpr auto kSquare = [](const X& x, Emitter&) { return x.mul(x, x); };
constexpr auto kRsqrt = [](const X& x, Emitter&) { return x.of("Reciprocal", x.of("Sqrt", x)); };
constexpr auto kExpm1 = [](const X& x, Emitter&) { return x.sub(x.of("Exp", x), x.number(1)); };
constexpr auto kLog1p = [](const X& x, Emitter&) { return x.of("Log", x.add(x, x.number(1))); };
constexpr auto kLog2 = [](const X& x, Emitter&) { return x.div(x.of("Log", x), x.number(M_LN2)); };
constexpr auto kLog10 = [](const X& x, Emitter&) { return x.div(x.of("Log", x), x.number(M_LN10)); };
constexpr auto kExp2 = [](const X& x, Emitter&) { return x.of("Exp", x.mul(x, x.number(M_LN2))); };
constexpr auto kErfc = [](const X& x, Emitter&) { return x.sub(x.number(1), x.of("Erf", x)); };
constexpr auto kGelu = [](const X& x, Emitter&) { return x.mul(x, cdf(x)); };
constexpr auto kGeluTanh = [](const X& x, Emitter&) {
  const Name cubic = x.mul(x.mul(x.number(0.044715), x), x.mul(x, x));
  const Name tanh = x.of("Tanh", x.mul(x.number(0.7978845608028654), x.add(x, cubic)));
  return x.mul(x.mul(x.number(0.5), x), x.add(x.number(1), tanh));
};
constexpr auto kSilu = [](const X& x, Emitter&) { return x.mul(x, x.of("Sigmoid", x)); };
constexpr auto kMish = [](const X& x, Emitter&) { return x.mul(x, x.of("Tanh", softplus(x, x))); };
constexpr auto kLogSigmoid = [](const X& x, Emitter&) { return x.of("Neg", softplus(x, x.of("Neg", x))); };
constexpr auto kHardswish = [](const X& x, Emitter& e) {
  return x.mul(x, x.mul(clip(x.add(x, x.number(3)), e, 0, 6), x.number(1. / 6)));
};
constexpr auto kHardsigmoid = [](const X& x, Emitter& e) {
  return e.node("HardSigmoid", {x}, {{"alpha", 1. / 6}, {"beta", 0.5}});
};
constexpr auto kFrac = [](const X& x, Emitter& e) { return x.sub(x, kTrunc(x, e)); };
constexpr auto kTanhshrink = [](const X& x, Emitter&) { return x.sub(x, x.of("Tanh", x)); };
// Not Shrink, which makes 0 of NaN.
Name shrunk(const X& x, Emitter& e, const Name& outside) {
  const Name inside = e.node("LessOrEqual", {x.of("Abs", x), x.number(e.real("lambda"))});
  return x.where(inside, x.number(0), outside);
}
constexpr auto kHardshrink = [](const X& x, Emitter& e) { return shrunk(x, e, x); };
constexpr auto kSoftshrink = [](const X& x, Emitter& e) {
  return shrunk(x, e, x.sub(x, x.mul(x.number(e.real("lambda")), x.of("Sign", x))));
};
constexpr auto kThreshold = [](const X& x, Emitter& e) {
  const Name below = e.node("LessOrEqual", {x, x.number(e.real("threshold"))});
  return x.where(below, x.number(e.real("value")), x);
};
constexpr auto kElu = [](const X& x, Emitter& e) {
  const double alpha = e.real("alpha"), scale = e.real("scale"), input = e.real("input_scale");
  if (scale == 1 && input == 1) return e.node("Elu", {x}, {{"alpha", alpha}});
  const Name left = x.mul(x.sub(x.of("Exp", x.mul(x, x.number(input))), x.number(1)), x.number(scale * alpha));
  return x.where(e.node("Greater", {x, x.number(0)}), x.mul(x, x.number(scale)), left);
};
constexpr auto kSoftplus = [](const X& x, Emitter& e) {
  const double beta = e.real("beta");
  const Name z = beta == 1 ? Name(x) : x.mul(x, x.number(beta)), y = softplus(x, z);
  const Name scaled = beta == 1 ? y : x.div(y, x.number(beta));
  return x.where(e.node("Greater", {z, x.number(e.real("threshold"))}), x, scaled);
};
constexpr auto kNanToNum = [](const X& x, Emitter& e) {
  const double infinity = std::numeric_limits<double>::infinity();
  const auto is = [&](double value) { return e.node("Equal", {x, x.number(value)}); };
  const Name above = x.where(is(infinity), x.number(e.real("max")), x);
  const Name finite = x.where(is(-infinity), x.number(e.real("min")), above);
  return x.where(x.of("IsNaN", x), x.number(e.real("nan")), finite);
};

// ---- two and three arguments ----------------------------------------------------------------------------------------

Name second(Emitter& e) { return e.cast(e.in(1), e.dtype(1), e.dtype(0)); }

/// Writes the one node that the op is, between casts.
Name node_of(const BinaryOp& op, Emitter& e) {
  const DType result = e.result().dtype();
  const auto operand_type = [&](size_t i) {
    const DType own = e.dtype(i);
    switch (op.operands) {
      case Operands::kResult: return result;
      case Operands::kWide: return result == kUInt8 ? kInt32 : result;
      case Operands::kOwn: return own == kUInt8 || own == kBool ? kInt32 : own;
      case Operands::kBool: return kBool;
    }
    return own;
  };
  const auto operand = [&](size_t i) { return e.cast(e.in(i), e.dtype(i), operand_type(i)); };
  const Name y = e.node(op.type, {operand(0), operand(1)});
  return op.operands == Operands::kWide ? e.cast(y, operand_type(0), result) : y;
}
void binary(Emitter& e) { e.set(node_of(entry(kBinaryOps, e.op()), e)); }
void ne(Emitter& e) { e.is("Not", {node_of(entry(kBinaryOps, "eq"), e)}); }
bool of_floats(const Emitter& e) { return is_floating_point(e.dtype(0)); }
constexpr auto kFmod = [](const X& x, Emitter& e) { return e.node("Mod", {x, second(e)}, {{"fmod", 1}}); };
constexpr auto kRemainder = [](const X& x, Emitter& e) {
  if (!of_floats(e)) return e.node("Mod", {x, second(e)});
  const Name b = second(e), r = e.node("Mod", {x, b}, {{"fmod", 1}}), zero = x.number(0);
  const Name apart = x.less(x.mul(r, b), zero);  // r and b have different signs
  return x.where(apart, x.add(r, b), r);
};
constexpr auto kFloorDivide = [](const X& x, Emitter& e) {
  const Name b = second(e);
  if (!of_floats(e)) return x.div(x.sub(x, e.node("Mod", {x, b})), b);
  return x.of("Floor", x.div(x, b));
};
constexpr auto kHypot = [](const X& x, Emitter& e) {
  const Name b = second(e);
  return x.of("Sqrt", x.add(x.mul(x, x), x.mul(b, b)));
};
constexpr auto kAtan2 = [](const X& y, Emitter& e) {
  const Name x = second(e), zero = y.number(0), at = y.of("Atan", y.div(y, x));
  const Name turn = y.where(y.less(y, zero), y.number(-M_PI), y.number(M_PI));
  const Name left = y.add(at, turn);
  const Name half = y.mul(y.of("Sign", y), y.number(M_PI / 2));
  const Name right = y.where(y.less(zero, x), at, half);
  return y.where(y.less(x, zero), left, right);
};
constexpr auto kLogaddexp = [](const X& a, Emitter& e) {
  const Name b = second(e), apart = a.of("Neg", a.of("Abs", a.sub(a, b)));
  return a.add(e.node("Max", {a, b}), a.of("Log", a.add(a.number(1), a.of("Exp", apart))));
};
constexpr auto kXlogy = [](const X& x, Emitter& e) {
  const Name zero = x.number(0), y = second(e);
  return x.where(e.node("Equal", {x, zero}), x.where(x.of("IsNaN", y), y, zero), x.mul(x, x.of("Log", y)));
};
constexpr auto kPrelu = [](const X& x, Emitter& e) {
  return x.where(e.node("Greater", {x, x.number(0)}), x, x.mul(x, second(e)));
};
constexpr auto kLerp = [](const X& a, Emitter& e) { return a.add(a, a.mul(e.in(2), a.sub(e.in(1), a))); };
constexpr auto kAddcmul = [](const X& x, Emitter& e) {
  return x.add(x, x.mul(x.number(e.real("value")), x.mul(e.in(1), e.in(2))));
};
constexpr auto kAddcdiv = [](const X& x, Emitter& e) {
  return x.add(x, x.mul(x.number(e.real("value")), x.div(e.in(1), e.in(2))));
};

void where(Emitter& e) {
  const DType dtype = e.result().dtype(), as = dtype == kBool ? kUInt8 : dtype;
  const auto operand = [&](size_t i) { return e.cast(e.cast(e.in(i), e.dtype(i), dtype), dtype, as); };
  e.set(e.cast(e.node("Where", {e.in(0), operand(1), operand(2)}), as, dtype));
}

/// Adds the ops that are one node.
EmitTable with_one_to_one(EmitTable table) {
  for (const UnaryOp& op : kUnaryOps)
    if (!op.name.empty()) table.emplace(op.name, unary);
  for (const BinaryOp& op : kBinaryOps)
    if (!op.name.empty()) table.emplace(op.name, binary);
  return table;
}

}  // namespace

const EmitTable& pointwise_ops() {
  static constinit Lazy<EmitTable> table;
  return table.get([] {
    return with_one_to_one({
        {"expm1", by<kExpm1>},
        {"log1p", by<kLog1p>},
        {"rsqrt", by<kRsqrt>},
        {"square", by<kSquare>},
        {"erfc", by<kErfc>},
        {"log2", by<kLog2>},
        {"log10", by<kLog10>},
        {"exp2", by<kExp2>},
        {"trunc", by<kTrunc>},
        {"frac", by<kFrac>},
        {"nan_to_num", by<kNanToNum>},
        {"relu6", clamp},
        {"hardtanh", clamp},
        {"clamp", clamp},
        {"leaky_relu",
         [](Emitter& e) {
           e.is("LeakyRelu", {e.in(0)}, {{"alpha", e.real("slope")}});
         }},
        {"elu", by<kElu>},
        {"selu", by<kElu>},
        {"celu", by<kElu>},
        {"gelu", by<kGelu>},
        {"gelu_tanh", by<kGeluTanh>},
        {"silu", by<kSilu>},
        {"mish", by<kMish>},
        {"logsigmoid", by<kLogSigmoid>},
        {"hardsigmoid", by<kHardsigmoid>},
        {"hardswish", by<kHardswish>},
        {"tanhshrink", by<kTanhshrink>},
        {"hardshrink", by<kHardshrink>},
        {"softshrink", by<kSoftshrink>},
        {"threshold", by<kThreshold>},
        {"softplus", by<kSoftplus>},
        {"fmod", by<kFmod>},
        {"remainder", by<kRemainder>},
        {"floor_divide", by<kFloorDivide>},
        {"hypot", by<kHypot>},
        {"atan2", by<kAtan2>},
        {"logaddexp", by<kLogaddexp>},
        {"xlogy", by<kXlogy>},
        {"prelu", by<kPrelu>},
        {"lerp", by<kLerp>},
        {"addcmul", by<kAddcmul>},
        {"addcdiv", by<kAddcdiv>},
        {"ne", ne},
        {"where", where},
    });
  });
}

}  // namespace reel::onnx::writer
