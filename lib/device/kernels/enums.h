// This file has the enums that tell a kernel of the table which operation it computes.
#pragma once

namespace reel {

enum class ReduceOp {
  kSum,
  kProd,
  kMax,
  kMin,
  kAny,
  kAll,
  kMean,
  kSumOfMagnitudes,
  kSumOfSquares,
  kSumWithoutNaN,  // NaN counts as 0
  kCountNonzero
};
enum class ScanOp { kSum, kProd, kLogSumExp };
enum class ScatterOp { kReplace, kAdd, kMul, kMax, kMin };
enum class SegmentOp { kSum, kMean, kMax, kMin };

/// RandomKind says which distribution random numbers have.
enum class RandomKind {
  kUniform,      // [a, b)
  kNormal,       // mean a, std b
  kInteger,      // integers in [a, b)
  kLogNormal,    // exp of a normal number
  kExponential,  // rate a
  kCauchy,       // median a, half width at half maximum b
  kGeometric     // trials up to the first success of probability a
};

}  // namespace reel
