#pragma once

namespace reel {

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
