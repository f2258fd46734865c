// These are the integer rows of the pointwise tables.
#pragma once
#include "lib/device/kernels/table.h"

namespace reel::cpu::REEL_ISA {

// nullptr where the functor is not defined for integers.
extern const KernelTable::Unary* const integer_unary;
extern const KernelTable::Binary* const integer_binary;

}  // namespace reel::cpu::REEL_ISA
