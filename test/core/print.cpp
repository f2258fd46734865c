#include <catch2/catch.hpp>
#include <limits>
#include <sstream>

#include "reel/ops.h"

using namespace reel;

// What PyTorch prints for the same tensors.
TEST_CASE("floats are printed in one format", "[cpu]") {
  CHECK(tensor({{1., 2.5}, {-3., 100.}}).to_string() ==
        "tensor([[  1.0000,   2.5000],\n"
        "        [ -3.0000, 100.0000]])");
  CHECK(tensor({1., 2., -30.}).to_string() == "tensor([  1.,   2., -30.])");
  CHECK(tensor({1e-5, 1., 1000.}).to_string() == "tensor([1.0000e-05, 1.0000e+00, 1.0000e+03])");
  CHECK(tensor({1., 2000.}).to_string() == "tensor([1.0000e+00, 2.0000e+03])");
  CHECK(tensor({0., 12.5}).to_string() == "tensor([ 0.0000, 12.5000])");
  CHECK(zeros({2}).to_string() == "tensor([0., 0.])");
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(tensor({infinity - infinity, 1.5, infinity}).to_string() == "tensor([   nan, 1.5000,    inf])");
}

TEST_CASE("numbers, integers and bools are printed without decoration", "[cpu]") {
  CHECK(full({}, 3.25).to_string() == "tensor(3.2500)");
  CHECK(full({}, 3).to_string() == "tensor(3)");
  CHECK(tensor({{1, -20}, {300, 4}}).to_string() == "tensor([[  1, -20],\n        [300,   4]])");
  CHECK(tensor({true, false}).to_string() == "tensor([ True, False])");
}

TEST_CASE("what is not a matter of course is said behind the elements", "[cpu]") {
  CHECK(tensor({1.5}, {.dtype = kFloat64}).to_string() == "tensor([1.5000], dtype=float64)");
  CHECK(tensor({1, 2}, {.dtype = kUInt8}).to_string() == "tensor([1, 2], dtype=uint8)");
  Tensor x = tensor({1., 2.}).requires_grad_();
  CHECK(x.to_string() == "tensor([1., 2.], requires_grad=True)");
  CHECK((x * 2).to_string() == "tensor([2., 4.], grad_fn=<mul>)");
  CHECK(zeros({0}).to_string() == "tensor([])");
  CHECK(zeros({0, 3}).to_string() == "tensor([], size=(0, 3))");
  CHECK(zeros({0}, {.dtype = kInt64}).to_string() == "tensor([], dtype=int64)");
  CHECK(Tensor().to_string() == "tensor(undefined)");
  CHECK((arange(19) / 7).to(kFloat64).requires_grad_().to_string() ==
        "tensor([0.0000, 0.1429, 0.2857, 0.4286, 0.5714, 0.7143, 0.8571, 1.0000, 1.1429,\n"
        "        1.2857, 1.4286, 1.5714, 1.7143, 1.8571, 2.0000, 2.1429, 2.2857, 2.4286,\n"
        "        2.5714], dtype=float64, requires_grad=True)");
}

TEST_CASE("dimensions are nested, long ones abbreviated", "[cpu]") {
  CHECK(arange(12).reshape({2, 2, 3}).to_string() ==
        "tensor([[[ 0,  1,  2],\n"
        "         [ 3,  4,  5]],\n"
        "\n"
        "        [[ 6,  7,  8],\n"
        "         [ 9, 10, 11]]])");
  CHECK(arange(1001).to_string() == "tensor([   0,    1,    2,  ...,  998,  999, 1000])");
  CHECK((arange(2000).reshape({20, 100}).t()).to_string() ==
        "tensor([[   0,  100,  200,  ..., 1700, 1800, 1900],\n"
        "        [   1,  101,  201,  ..., 1701, 1801, 1901],\n"
        "        [   2,  102,  202,  ..., 1702, 1802, 1902],\n"
        "        ...,\n"
        "        [  97,  197,  297,  ..., 1797, 1897, 1997],\n"
        "        [  98,  198,  298,  ..., 1798, 1898, 1998],\n"
        "        [  99,  199,  299,  ..., 1799, 1899, 1999]])");
  std::ostringstream out;
  out << arange(2);
  CHECK(out.str() == "tensor([0, 1])");
}
