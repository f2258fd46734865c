// This file lists the ops that are one node of ONNX and one op of reel, for both the reader and the writer.
#pragma once
#include <string_view>

#include "reel/ops.h"

namespace reel::onnx {

/// A UnaryOp is an op of one tensor. The writer has no name for one that reel composes of others.
struct UnaryOp {
  const char* type;  // ONNX's
  Tensor (*f)(const Tensor&);
  std::string_view name = {};  // reel's
};
inline constexpr UnaryOp kUnaryOps[] = {
    {"Abs", abs, "abs"},
    {"Acos", acos, "acos"},
    {"Acosh", acosh, "acosh"},
    {"Asin", asin, "asin"},
    {"Asinh", asinh, "asinh"},
    {"Atan", atan, "atan"},
    {"Atanh", atanh, "atanh"},
    {"BitwiseNot", bitwise_not},
    {"Ceil", ceil, "ceil"},
    {"Cos", cos, "cos"},
    {"Cosh", cosh, "cosh"},
    {"Det", linalg::det},
    {"Erf", erf, "erf"},
    {"Exp", exp, "exp"},
    {"Floor", floor, "floor"},
    {"HardSwish", hardswish},
    {"Identity", [](const Tensor& x) { return x; }},
    {"IsNaN", isnan},
    {"Log", log, "log"},
    {"Mish", mish},
    {"Neg", neg, "neg"},
    {"Not", logical_not},
    {"Reciprocal", reciprocal, "reciprocal"},
    {"Relu", relu, "relu"},
    {"Round", round, "round"},
    {"Sigmoid", sigmoid, "sigmoid"},
    {"Sign", sign, "sign"},
    {"Sin", sin, "sin"},
    {"Sinh", sinh, "sinh"},
    {"Softplus", [](const Tensor& x) { return softplus(x); }},
    {"Softsign", softsign, "softsign"},
    {"Sqrt", sqrt, "sqrt"},
    {"Tan", tan, "tan"},
    {"Tanh", tanh, "tanh"},
};

/// Divides integers as C does, rounding towards 0.
inline Tensor divide(const Tensor& a, const Tensor& b) {
  return a.is_floating_point() ? a / b : floor_divide(a - fmod(a, b), b);
}
inline Tensor power(const Tensor& a, const Tensor& b) { return pow(a, b).to(a.dtype()); }

/// An Operands names the dtype that the writer casts the operands to.
enum class Operands {
  kResult,  ///< The result's dtype: a number beside halves may be a float32.
  kWide,    ///< The same, but int32 for uint8, which the runtimes lack.
  kOwn,     ///< The operand's own dtype, but int32 for uint8 and bool, which the runtimes do not compare.
  kBool,
};
/// A BinaryOp is an op of two tensors.
struct BinaryOp {
  const char* type;
  Tensor (*f)(const Tensor&, const Tensor&);
  std::string_view name = {};
  Operands operands = Operands::kResult;
  bool folds = false;  // ONNX's has one or more operands
};
inline constexpr BinaryOp kBinaryOps[] = {
    {"Add", add, "add", Operands::kWide},
    {"And", logical_and, "logical_and", Operands::kBool},
    {"BitwiseAnd", bitwise_and},
    {"BitwiseOr", bitwise_or},
    {"BitwiseXor", bitwise_xor},
    {"CastLike", [](const Tensor& a, const Tensor& b) { return a.to(b.dtype()); }},
    {"Div", divide, "div"},
    {"Equal", eq, "eq", Operands::kOwn},
    {"Greater", gt},
    {"GreaterOrEqual", ge},
    {"Less", lt, "lt", Operands::kOwn},
    {"LessOrEqual", le, "le", Operands::kOwn},
    {"MatMul", matmul},
    {"Max", maximum, "maximum", Operands::kWide, true},
    {"Mean", add, {}, Operands::kResult, true},
    {"Min", minimum, "minimum", Operands::kWide, true},
    {"Mul", mul, "mul", Operands::kWide},
    {"Or", logical_or, "logical_or", Operands::kBool},
    {"PRelu", [](const Tensor& x, const Tensor& slope) { return where(x < 0, slope * x, x); }},
    {"Pow", power, "pow"},
    {"Sub", sub, "sub", Operands::kWide},
    {"Sum", add, {}, Operands::kResult, true},
    {"Xor", logical_xor, "logical_xor", Operands::kBool},
};

}  // namespace reel::onnx
