// A plug-in of plugin_host.cpp.
#include <reel/reel.h>

struct Net : reel::nn::Layer<Net> {
  reel::nn::Linear hidden{*this, "hidden", 4, 8};
  reel::Tensor forward(const reel::Tensor& x) const { return tanh(hidden(x)); }
};
extern "C" __attribute__((visibility("default"))) void plugin_forward(const reel::Tensor& x, reel::Tensor* y) {
  *y = Net()(x);
}
