// The code of onnx.md.
#include <reel/onnx.h>

#include "samples/guide/guide.h"

namespace guide_onnx {
using namespace reel;
using guide::Net;

void run() {
  Net net;
  net.eval();
  const Tensor x = randn({2, 4});
  // [save]
  onnx::save(net, {x}, "net.onnx",  // x is an example, whose batch may have any size
             {.inputs = {"image"}, .outputs = {"scores"}, .dynamic = {{.input = 0, .dim = 0, .name = "batch"}}});
  // [/save]
  // [load]
  onnx::Model body = onnx::load("net.onnx", {.outputs = {"scores"}});  // a layer, differentiable and trained
  Tensor y = body(x);
  // [/load]
  const Tensor more = randn({5, 4});
  REEL_CHECK(allclose(y, net(x), 1e-5, 1e-6) && allclose(body(more), net(more), 1e-5, 1e-6), "onnx");
}

}  // namespace guide_onnx

void onnx_files() { guide_onnx::run(); }
