#include "samples/guide/guide.h"

namespace guide_tensors {
using namespace reel;

void run() {
  // [make]
  Tensor a = tensor({{1.0, 2.0}, {3.0, 4.0}});     // float32 [2, 2]; integer literals give int64
  Tensor b = zeros({2, 3}, {.dtype = kFloat64});   // also ones, full, arange, linspace, eye, rand, randn, randint
  Tensor c = tensor(std::vector<float>{1, 2, 3});  // a copy of the vector
  a.shape();                                       // [2, 2]
  a.size(-1);                                      // 2
  a[0][1].item<float>();                           // 2
  // [/make]
  REEL_CHECK(a.dtype() == kFloat32 && b.dtype() == kFloat64 && c.numel() == 3, "dtypes");
  REEL_CHECK(a[0][1].item<float>() == 2, "item");

  // [views]
  Tensor x = arange(12).view({3, 4});
  Tensor row = x[1];                                 // a view: it shares the elements of x
  row.fill_(7);                                      // so this changes x
  Tensor part = x.index({Slice(), Slice(1, 3)});     // x[:, 1:3], a view
  Tensor picked = x.index({tensor({2, 0})});         // rows 2 and 0, a copy
  Tensor large = x.index({x > 6});                   // the elements above 6, [n]
  x.index_put_({0, Slice(0, 2)}, tensor({-1, -2}));  // x[0, 0:2] = …
  Tensor same = x.clone();                           // elements of its own
  // [/views]
  REEL_CHECK(x[1][3].item<int64_t>() == 7 && x[0][1].item<int64_t>() == -2, "views");
  REEL_CHECK(part.shape() == (Shape{3, 2}) && picked.shape() == (Shape{2, 4}) && large.numel() == 8, "parts");
  REEL_CHECK(same.equal(x), "clone");

  // [ops]
  Tensor y = randn({4, 3}), w = randn({3, 2});
  Tensor product = matmul(y, w);                      // [4, 2]; `*` is elementwise
  Tensor scaled = (y - y.mean(0)) / reel::std(y, 0);  // shapes are broadcast as in NumPy
  auto [values, indices] = max(y, 1);                 // results with several parts are structs
  Tensor total = sum(y * y).sqrt();                   // the most used ops are members, too
  // [/ops]
  REEL_CHECK(product.shape() == (Shape{4, 2}) && scaled.shape() == y.shape() && indices.shape() == Shape{4}, "ops");
  REEL_CHECK(total.item<float>() > 0 && values.numel() == 4, "ops");

  // [grad]
  Tensor p = tensor({1.0, 2.0, 3.0}).requires_grad_();
  Tensor loss = sum(p * p);
  loss.backward();
  p.grad();  // 2 p
  // [/grad]
  REEL_CHECK(p.grad().equal(tensor({2.0, 4.0, 6.0})), "grad");

  // [error]
  try {
    matmul(ones({2, 3}), ones({4, 5}));
  } catch (const Error& e) {
    std::cout << e.what() << '\n';  // matmul: inner sizes differ, [2, 3] x [4, 5]
  }
  // [/error]
  try {
    matmul(ones({2, 3}), ones({4, 5}));
    throw std::logic_error("no error");
  } catch (const Error& e) {
    REEL_CHECK(std::string(e.what()) == "matmul: inner sizes differ, [2, 3] x [4, 5]", e.what());
  }
}

}  // namespace guide_tensors

void tensors() { guide_tensors::run(); }
