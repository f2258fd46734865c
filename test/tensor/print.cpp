#include <catch2/catch.hpp>
#include <clocale>
#include <limits>
#include <locale>
#include <sstream>
#include <vector>

#include "reel/reel.h"

using namespace reel;

namespace {

/// What a program writes that prints tensors, layers and errors of many digits.
std::vector<std::string> texts() {
  std::vector<std::string> texts;
  const auto add = [&](const auto& what) {
    std::ostringstream out;
    out.imbue(std::locale::classic());  // the program's own choice
    out << what;
    texts.push_back(out.str());
  };
  const auto add_error = [&](const auto& f) {
    try {
      f();
    } catch (const Error& error) {
      texts.push_back(error.what());
    }
  };
  nn::Sequential net(nn::Linear(1234, 5678), nn::Dropout(0.25), nn::LayerNorm(5678, {.eps = 0.00125}), nn::ReLU());
  add(net);
  add(nn::summary(net, zeros({64, 1234})));
  add(nn::Conv2d(1024, 2048, {3, 5}, {.padding = {1000, 2000}}));
  add(nn::ConvTranspose2d(1024, 2048, 3, {.stride = 1000}));
  add(nn::Embedding(10000, 300, {.padding_idx = 9999, .max_norm = 1.5}));
  add(nn::LSTM(1000, 2000, {.num_layers = 2, .dropout = 0.5}));
  add(nn::ConstantPad2d(1000, 0.5));
  add(nn::MaxPool2d(1000));
  add(nn::AdaptiveAvgPool2d(1000));
  add(nn::LeakyReLU(0.125));
  add(nn::BatchNorm2d(1024));
  add(nn::GroupNorm(32, 1024));
  add(nn::ParameterList(std::vector<Tensor>{ones({1000, 2})}));
  add(full({3, 2}, 1234.5));
  add(tensor({1000000, 2}));
  add(zeros({1, 1000}).shape());
  add_error([] { mm(ones({1000, 2}), ones({3000, 4})); });
  add_error([] { ones({2}).narrow(0, 1000, 20000); });
  add_error([] { empty({int64_t{1} << 40}); });
  add_error([] { dropout(ones({1}), 12345.5); });
  add_error([] { optim::SGD({ones({1})}, -1234.5); });
  char progress[1000] = "";
  std::FILE* const file = fmemopen(progress, sizeof progress, "w");
  {
    ProgressBar bar({.total = 4000, .interval = 0, .file = file});
    bar.update(3000, "loss", 0.125);
  }
  std::fclose(file);
  texts.push_back(std::string(progress).substr(0, 17));  // without the rate
  return texts;
}

/// Digits in groups, and a decimal comma.
struct Punctuation : std::numpunct<char> {
  char do_decimal_point() const override { return ','; }
  char do_thousands_sep() const override { return '.'; }
  std::string do_grouping() const override { return "\3"; }
};

}  // namespace

TEST_CASE("what the library writes does not depend on the global locale", "[cpu]") {
  const std::vector<std::string> expected = texts();
  const std::locale before = std::locale::global(std::locale(std::locale::classic(), new Punctuation));
  for (const char* name : {"de_DE.UTF-8", "de_DE", "fr_FR.UTF-8"})  // that of C, where it is installed
    if (std::setlocale(LC_NUMERIC, name)) break;
  const std::vector<std::string> got = texts();
  std::setlocale(LC_NUMERIC, "C");
  std::locale::global(before);
  CHECK(got == expected);
}

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
