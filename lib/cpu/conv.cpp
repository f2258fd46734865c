#include "lib/cpu/conv.h"

#include <algorithm>

#include "lib/cpu/halves.h"
#include "lib/cpu/kernels.h"
#include "lib/cpu/onednn_gemm.h"
#include "lib/cpu/scratch.h"
#include "lib/device/kernels/convolution.h"
#include "lib/device/kernels/gemm.h"
#include "reel/threads.h"

// unfold and fold (im2col and col2im), and convolution as a matrix product with the unfolded input: for float64, and
// for problems that oneDNN refuses.
namespace reel::cpu {
namespace {

int64_t volume(const std::array<int64_t, 3>& size) { return size[0] * size[1] * size[2]; }

int64_t ceil_div(int64_t a, int64_t b) { return a > 0 ? (a + b - 1) / b : 0; }

/// For every row of the column matrix of one image, [channels * kernel, y_size], and every line of windows in it calls
/// visit(column, first, last, count, pixel): of the `count` elements at `column` those in [first, last) are the pixels
/// pixel, pixel + stride, …, the others lie in the padding.
template <class Visit>
void for_each_line(const Convolution& c, int64_t channels, const Visit& visit) {
  const auto [dil_d, dil_h, dil_w] = c.dilation;
  const auto inside = [&](int d, int64_t at) { return at >= 0 && at < c.x_size[d]; };
  const int64_t count = c.y_size[2], stride = c.stride[2], width = c.x_size[2];
  int64_t column = 0;
  for (int64_t channel = 0; channel < channels; ++channel)
    for (int64_t kd = 0; kd < c.kernel[0]; ++kd)
      for (int64_t kh = 0; kh < c.kernel[1]; ++kh)
        for (int64_t kw = 0; kw < c.kernel[2]; ++kw) {
          const int64_t left = kw * dil_w - c.before[2];
          const int64_t first = std::min(ceil_div(-left, stride), count);
          const int64_t last = std::clamp(ceil_div(width - left, stride), first, count);
          for (int64_t yd = 0; yd < c.y_size[0]; ++yd)
            for (int64_t yh = 0; yh < c.y_size[1]; ++yh, column += count) {
              const int64_t d = yd * c.stride[0] + kd * dil_d - c.before[0];
              const int64_t h = yh * c.stride[1] + kh * dil_h - c.before[1];
              const bool hit = inside(0, d) && inside(1, h);
              const int64_t row = ((channel * c.x_size[0] + d) * c.x_size[1] + h) * width;
              visit(column, hit ? first : count, hit ? last : count, count, row + first * stride + left);
            }
        }
}

template <class T>
void unfold_image(const Convolution& c, int64_t channels, const T* x, T* columns) {
  const int64_t stride = c.stride[2];
  for_each_line(c, channels, [&](int64_t column, int64_t first, int64_t last, int64_t count, int64_t pixel) {
    T* to = columns + column;
    std::fill(to, to + first, T(0));
    if (stride == 1)
      std::copy_n(x + pixel, last - first, to + first);
    else
      for (int64_t i = first; i < last; ++i) to[i] = x[pixel + (i - first) * stride];
    std::fill(to + last, to + count, T(0));
  });
}

template <class T>
void fold_image(const Convolution& c, int64_t channels, const T* columns, T* x) {
  const int64_t stride = c.stride[2];
  std::fill_n(x, channels * volume(c.x_size), T(0));
  for_each_line(c, channels, [&](int64_t column, int64_t first, int64_t last, int64_t, int64_t pixel) {
    for (int64_t i = first; i < last; ++i) x[pixel + (i - first) * stride] += columns[column + i];
  });
}

/// The images of c from `first` to `last`, of which a weight gradient is the sum.
template <class T>
void convolve_images(ConvPart wanted, const Convolution& c, int64_t first, int64_t last) {
  const int64_t in = c.in / c.groups, out = c.out / c.groups;
  const int64_t rows = in * volume(c.kernel), places = volume(c.y_size), pixels = volume(c.x_size);
  const Scratch scratch(static_cast<size_t>(rows * places) * sizeof(T));
  T* const columns = scratch.data<T>();
  // m, n, k and the operands of each of the three products.
  Gemm product{.dtype = c.dtype,
               .m = out,
               .n = places,
               .k = rows,
               .a = nullptr,
               .lda = rows,
               .b = columns,
               .ldb = places,
               .c = nullptr,
               .ldc = places};
  if (wanted == kConvX) product.trans_a = true, product.m = rows, product.k = out, product.c = columns;
  if (wanted == kConvWeight)
    product.trans_b = true, product.n = rows, product.k = places, product.lda = places, product.ldc = rows;
  for (int64_t image = first; image < last; ++image)
    for (int64_t group = 0; group < c.groups; ++group) {
      T* const x = static_cast<T*>(c.data[kConvX]) + (image * c.groups + group) * in * pixels;
      T* const y = static_cast<T*>(c.data[kConvY]) + (image * c.groups + group) * out * places;
      T* const weight = static_cast<T*>(c.data[kConvWeight]) + group * out * rows;
      if (wanted != kConvX) unfold_image(c, in, x, columns);
      if (wanted == kConvY) {
        product.a = weight, product.c = y;
        product.beta = c.bias != nullptr;
        for (int64_t o = 0; c.bias && o < out; ++o)
          std::fill_n(y + o * places, places, static_cast<const T*>(c.bias)[group * out + o]);
      } else if (wanted == kConvX) {
        product.a = weight, product.b = y;
      } else {
        product.a = y, product.c = weight;
        product.beta = image > first;
      }
      cpu_kernels().gemm(product);
      if (wanted == kConvX) fold_image(c, in, columns, x);
    }
}

/// Images whose parts are worth a thread: of about 2²⁰ multiplications or copies of elements.
int64_t images_of_part(int64_t work_of_image) {
  return std::max<int64_t>(1, (1 << 20) / std::max<int64_t>(work_of_image, 1));
}

template <class T>
void convolve_by_columns(ConvPart wanted, const Convolution& c) {
  const int64_t window = c.in / c.groups * volume(c.kernel);
  if (wanted == kConvWeight) return convolve_images<T>(wanted, c, 0, c.n);  // one sum; its products are divided
  parallel_for(c.n, images_of_part(c.out * volume(c.y_size) * window),
               [&](int64_t first, int64_t last) { convolve_images<T>(wanted, c, first, last); });
}

template <class T, class Image>
void for_each_image(const Convolution& c, const Image& image) {
  const int64_t pixels = c.in * volume(c.x_size), columns = c.in * volume(c.kernel) * volume(c.y_size);
  parallel_for(c.n, images_of_part(16 * columns), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      image(static_cast<T*>(c.data[kConvX]) + i * pixels, static_cast<T*>(c.data[kConvY]) + i * columns);
  });
}

void unfold(const Convolution& c) {
  if (is_half(c.dtype)) return unfold(Widened().of_windows(c, true));
  const auto run = [&](auto* x, auto* y) { unfold_image(c, c.in, x, y); };
  c.dtype == kFloat64 ? for_each_image<double>(c, run) : for_each_image<float>(c, run);
}

void fold(const Convolution& c) {
  if (is_half(c.dtype)) return fold(Widened().of_windows(c, false));
  const auto run = [&](auto* x, auto* y) { fold_image(c, c.in, y, x); };
  c.dtype == kFloat64 ? for_each_image<double>(c, run) : for_each_image<float>(c, run);
}

}  // namespace

bool convolve(ConvPart wanted, const Convolution& c) {
  const bool native = c.dtype == kFloat32 || (c.dtype == kBFloat16 && multiplies_bfloat16());
  if (native && onednn_convolve(wanted, c)) return true;
  if (is_half(c.dtype)) return convolve(wanted, Widened().of(wanted, c));
  if (c.channels_last[kConvX]) return false;
  c.dtype == kFloat64 ? convolve_by_columns<double>(wanted, c) : convolve_by_columns<float>(wanted, c);
  return true;
}

void install_conv(KernelTable& table) {
  table.unfold = unfold;
  table.fold = fold;
}

}  // namespace reel::cpu
