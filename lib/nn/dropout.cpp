#include "reel/nn/dropout.h"

#include "lib/nn/repr.h"

namespace reel::nn {

void internal::check_dropout(const char* name, double p) {
  REEL_CHECK(p >= 0 && p <= 1, name, ": p must be between 0 and 1, got ", p);
}
std::string internal::dropout_repr(double p) { return Repr().add("p", p).text(); }

}  // namespace reel::nn
