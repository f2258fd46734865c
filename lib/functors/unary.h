#pragma once
#include "lib/functors/activation.h"
#include "lib/functors/math.h"

namespace reel::functors {

template <class... F, class... G>
std::tuple<F..., G...> joined(std::tuple<F...>*, std::tuple<G...>*);
/// All functions of one argument.
using UnaryList = decltype(joined(static_cast<MathList*>(nullptr), static_cast<ActivationList*>(nullptr)));

}  // namespace reel::functors
