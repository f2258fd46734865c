// cuda/dnn.h by the CPU's convolution. With SIMT_DNN=0 every problem is refused, as by a cuDNN without an engine for
// it.
#include "cuda/dnn.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "cuda/runtime.h"
#include "lib/kernels/convolution.h"
#include "lib/kernels/table.h"
#include "test/simt/streams.h"

namespace reel::cuda {
namespace {

/// In float32, as cuDNN computes with halves.
template <class T>
void convolve_halves(ConvPart wanted, const Convolution& c) {
  int64_t taps = 1, pixels = 1, places = 1;
  for (size_t d = 0; d < 3; ++d) taps *= c.kernel[d], pixels *= c.x_size[d], places *= c.y_size[d];
  const int64_t sizes[] = {c.n * c.in * pixels, c.out * (c.in / c.groups) * taps, c.n * c.out * places};
  Convolution wide = c;
  wide.dtype = kFloat32;
  std::vector<float> parts[3];
  for (int part = 0; part < 3; ++part) {
    parts[part].resize(static_cast<size_t>(sizes[part]));
    wide.data[part] = parts[part].data();
    if (part == wanted) continue;
    const T* from = static_cast<const T*>(c.data[part]);
    for (float& value : parts[part]) value = static_cast<float>(*from++);
  }
  cpu_kernels().convolve(wanted, wide);
  T* to = static_cast<T*>(c.data[wanted]);
  for (const float value : parts[wanted]) *to++ = static_cast<T>(value);
}

void run(ConvPart wanted, const Convolution& c) {
  switch (c.dtype) {
    case kFloat16: return convolve_halves<__half>(wanted, c);
    case kBFloat16: return convolve_halves<__nv_bfloat16>(wanted, c);
    default: return cpu_kernels().convolve(wanted, c);
  }
}

}  // namespace

bool dnn_convolve(ConvPart wanted, const Convolution& conv) {
  const char* known = std::getenv("SIMT_DNN");
  if (known && std::string_view(known) == "0") {
    note_fallback("SIMT_DNN=0 refuses convolutions");
    return false;
  }
  CUDA_CHECK(simt::refuse_while_capturing());  // a new plan or its first run loads kernels
  Convolution c = conv;
  c.bias = nullptr;
  simt::enqueue(stream(), [=] { run(wanted, c); });
  return true;
}

}  // namespace reel::cuda
