// cuda/dnn.h by the CPU's convolution, and attention by the formula. Recurrent layers are cuda/dnn_recurrence.cu's,
// with cudnn.cpp as the library.
#include "cuda/dnn.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "cuda/runtime.h"
#include "lib/device/kernels/convolution.h"
#include "lib/device/kernels/table.h"
#include "test/simt/dnn.h"
#include "test/simt/streams.h"

bool simt::dnn_behaves(std::string_view way) {
  const char* const ways = std::getenv("SIMT_DNN");
  return ways && ways == way;
}

namespace reel::cuda {
namespace {

/// In float32, as cuDNN computes with halves: with a bias, too, so that the result is rounded once.
template <class T>
void convolve_halves(ConvPart wanted, const Convolution& c) {
  int64_t taps = 1, pixels = 1, places = 1;
  for (size_t d = 0; d < 3; ++d) taps *= c.kernel[d], pixels *= c.x_size[d], places *= c.y_size[d];
  const int64_t sizes[] = {c.n * c.in * pixels, c.out * (c.in / c.groups) * taps, c.n * c.out * places};
  Convolution wide = c;
  wide.dtype = kFloat32;
  std::vector<float> parts[3], bias;
  if (c.bias) {
    const T* const from = static_cast<const T*>(c.bias);
    for (int64_t o = 0; o < c.out; ++o) bias.push_back(static_cast<float>(from[o]));
    wide.bias = bias.data();
  }
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

void run_plain(ConvPart wanted, const Convolution& c) {
  switch (c.dtype) {
    case kFloat16: return convolve_halves<__half>(wanted, c);
    case kBFloat16: return convolve_halves<__nv_bfloat16>(wanted, c);
    default: cpu_kernels().convolve(wanted, c);
  }
}

std::vector<int64_t> sizes_of(const Convolution& c, ConvPart part) {
  const int64_t rows = part == kConvWeight ? c.out : c.n;
  const int64_t channels = part == kConvX ? c.in : part == kConvWeight ? c.in / c.groups : c.out;
  const auto& spatial = part == kConvX ? c.x_size : part == kConvWeight ? c.kernel : c.y_size;
  return {rows, channels, spatial[0], spatial[1], spatial[2]};
}

/// Copies a part from its own strides to row-major order, or back.
void copy_part(const Convolution& c, ConvPart part, char* plain, bool back) {
  const std::vector<int64_t> sizes = sizes_of(c, part), strides = dense_strides(sizes, c.channels_last[part]);
  const auto bytes = static_cast<size_t>(size_of(c.dtype));
  std::vector<int64_t> at(sizes.size());
  for (int64_t left = Shape(sizes).numel(); left > 0; --left, plain += bytes) {
    int64_t offset = 0;
    for (size_t d = 0; d < at.size(); ++d) offset += at[d] * strides[d];
    char* const own = static_cast<char*>(c.data[part]) + offset * size_of(c.dtype);
    back ? std::memcpy(own, plain, bytes) : std::memcpy(plain, own, bytes);
    for (size_t d = at.size(); d-- > 0 && ++at[d] == sizes[d];) at[d] = 0;
  }
}

/// Of any strides, by copies as the CPU takes them.
void run(ConvPart wanted, const Convolution& c) {
  if (c.channels_last == std::array<bool, 3>{}) return run_plain(wanted, c);
  Convolution plain = c;
  plain.channels_last = {};
  std::vector<char> copies[3];
  for (const ConvPart part : {kConvX, kConvWeight, kConvY}) {
    copies[part].resize(static_cast<size_t>(Shape(sizes_of(c, part)).numel() * size_of(c.dtype)));
    plain.data[part] = copies[part].data();
    if (part != wanted) copy_part(c, part, copies[part].data(), false);
  }
  run_plain(wanted, plain);
  copy_part(c, wanted, copies[wanted].data(), true);
}

using simt::dnn_behaves;

/// Rows of a head.
template <class T>
struct Rows {
  T* data;
  RaggedAttention::Steps steps;
  T* at(int64_t s, int64_t h, int64_t row) const { return data + s * steps[0] + h * steps[1] + row * steps[2]; }
};

template <class T>
void attend(const RaggedAttention& a, const RaggedAttention::Batch& b, bool backward) {
  const int64_t most_queries = a.queries / a.sequences, most_keys = a.keys / a.sequences, width = a.width;
  const auto rows = [](const void* data, const RaggedAttention::Steps& steps) {
    return Rows<T>{static_cast<T*>(const_cast<void*>(data)), steps};
  };
  const auto q = rows(a.query, b.query), k = rows(a.key, b.key), v = rows(a.value, b.value), y = rows(a.y, b.y);
  const auto g = rows(a.grad, b.grad), gq = rows(a.grad_query, b.grad_query), gk = rows(a.grad_key, b.grad_key),
             gv = rows(a.grad_value, b.grad_value);
  const bool heeds_lengths = !dnn_behaves("ignored_lengths");
  const float scale = dnn_behaves("wrong_attention") ? 1 : static_cast<float>(a.scale);
  const auto dot = [&](const T* x, const T* z) {
    float sum = 0;
    for (int64_t c = 0; c < width; ++c) sum += float(x[c]) * float(z[c]);
    return sum;
  };
  const auto store = [&](T* to, const float* from) {
    for (int64_t c = 0; c < width; ++c) to[c] = T(from[c]);
  };
  const int64_t share = a.heads / a.kv_heads;
  std::vector<float> p(static_cast<size_t>(most_queries * most_keys)), of_keys, of_values;
  for (int64_t s = 0; s < a.sequences; ++s)
    for (int64_t h = 0; h < a.heads; ++h) {
      const int64_t queries = b.query_lengths ? b.query_lengths[s] : most_queries;
      const int64_t keys = b.key_lengths && heeds_lengths ? b.key_lengths[s] : most_keys;
      float* const log_sums = a.log_sums ? static_cast<float*>(a.log_sums) + (s * a.heads + h) * most_queries : nullptr;
      const int64_t kv = h / share;
      if (h % share == 0) of_keys.assign(static_cast<size_t>(keys * width), 0), of_values = of_keys;
      for (int64_t i = 0; i < queries; ++i) {
        float* const row = p.data() + i * keys;
        float most = -INFINITY, total = 0;
        for (int64_t j = 0; j < keys; ++j) {
          row[j] = a.causal && j > i ? -INFINITY : scale * dot(q.at(s, h, i), k.at(s, kv, j));
          most = std::max(most, row[j]);
        }
        for (int64_t j = 0; j < keys; ++j) total += std::exp(row[j] - most);
        const float log_sum = backward ? log_sums[i] : most + std::log(total);
        if (!backward && log_sums) log_sums[i] = log_sum;
        std::vector<float> sum(static_cast<size_t>(width));
        const float difference = backward ? dot(g.at(s, h, i), y.at(s, h, i)) : 0;
        for (int64_t j = 0; j < keys; ++j) {
          const float weight = std::exp(row[j] - log_sum);
          const float of_score = backward ? weight * scale * (dot(g.at(s, h, i), v.at(s, kv, j)) - difference) : weight;
          for (int64_t c = 0; c < width; ++c) {
            sum[size_t(c)] += of_score * float((backward ? k : v).at(s, kv, j)[c]);
            if (!backward) continue;
            of_keys[size_t(j * width + c)] += of_score * float(q.at(s, h, i)[c]);
            of_values[size_t(j * width + c)] += weight * float(g.at(s, h, i)[c]);
          }
        }
        store((backward ? gq : y).at(s, h, i), sum.data());
      }
      for (int64_t j = 0; backward && h % share == share - 1 && j < keys; ++j) {
        store(gk.at(s, kv, j), of_keys.data() + j * width);
        store(gv.at(s, kv, j), of_values.data() + j * width);
      }
    }
}

}  // namespace

bool cudnn_convolve(ConvPart wanted, const Convolution& conv) {
  if (dnn_behaves("0")) {
    note_fallback("SIMT_DNN=0 refuses convolutions");
    return false;
  }
  if (!has_one_layout(conv)) {
    note_fallback("cuDNN has no plan for a convolution of several layouts");
    return false;
  }
  CUDA_CHECK(simt::refuse_while_capturing());  // a new plan or its first run loads kernels
  const bool apart = conv.bias && dnn_behaves("no_bias");
  Convolution c = conv;
  if (apart) c.bias = nullptr;
  simt::enqueue(stream(), [=] { run(wanted, c); });
  if (apart) add_bias(conv);
  return true;
}

bool cudnn_sdpa(const RaggedAttention& a, bool backward) {
  if (dnn_behaves("0")) {
    note_fallback("SIMT_DNN=0 refuses attention");
    return false;
  }
  CUDA_CHECK(simt::refuse_while_capturing());
  simt::enqueue(stream(), [=, batch = *a.batch] {
    a.dtype == kFloat16 ? attend<__half>(a, batch, backward) : attend<__nv_bfloat16>(a, batch, backward);
  });
  return true;
}

#if !__has_include(<cudnn.h>)  // otherwise cuda/dnn_recurrence.cu
int64_t cudnn_rnn_workspace(const RnnLayer&) { return -1; }
bool cudnn_rnn(const RnnLayer&, bool) { return false; }
#endif

}  // namespace reel::cuda
