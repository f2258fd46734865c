#include <algorithm>

#include "cuda/dnn.h"
#include "cuda/kernels.h"
#include "cuda/runtime.h"
#include "lib/device/kernels/convolution.h"
#include "lib/device/kernels/gemm.h"

// unfold and fold (im2col and col2im), and convolution: by cuDNN or, for problems that it refuses, as a matrix product
// with the unfolded input.
namespace reel::cuda {
namespace {

// ---- unfold and fold ------------------------------------------------------------------------------------------------

int64_t volume(const std::array<int64_t, 3>& size) { return size[0] * size[1] * size[2]; }

/// The sizes of a Convolution in C arrays: std::array's operator[] is host code.
struct ConvShape {
  int64_t x[3], y[3], kernel[3], stride[3], dilation[3], before[3];
  explicit ConvShape(const Convolution& c) {
    for (size_t d = 0; d < 3; ++d) {
      x[d] = c.x_size[d], y[d] = c.y_size[d], kernel[d] = c.kernel[d];
      stride[d] = c.stride[d], dilation[d] = c.dilation[d], before[d] = c.before[d];
    }
  }
};
__device__ int64_t product(const int64_t (&size)[3]) { return size[0] * size[1] * size[2]; }

struct Coords {
  int64_t at[3];
};
__device__ Coords unravel(int64_t i, const int64_t (&size)[3]) {
  const int64_t line = i / size[2];
  return {line / size[1], line % size[1], i - line * size[2]};
}

/// The shape of a launch over rows: blockIdx.x goes along a row, blocks stride over the rows by gridDim.y (65535 at
/// most), so that a row's own divisions are made once for a row.
struct RowGrid {
  dim3 grid, block;
  RowGrid(int64_t rows, int64_t width)
      : block(static_cast<unsigned>(std::min<int64_t>(ceil_div(width, kWarp) * kWarp, kThreads))) {
    if (rows == 0 || width == 0) grid.x = 0;
    if (grid.x) grid.x = static_cast<unsigned>(std::min<int64_t>(ceil_div(width, block.x), 1024));
    grid.y = static_cast<unsigned>(std::clamp<int64_t>(rows, 1, 65535));
  }
};

/// columns is [planes, kernel taps, windows]: a row holds the elements under one tap of the kernel, one for
/// each window.
template <class T>
__global__ void unfold_kernel(ConvShape f, int64_t rows, const T* x, T* columns) {
  const int64_t places = product(f.y), taps = product(f.kernel);
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const T* from = x + row / taps * product(f.x);
    const Coords k = unravel(row % taps, f.kernel);
    for (int64_t i = first_index(); i < places; i += index_step()) {
      Coords p = unravel(i, f.y);
      bool inside = true;
      for (int d = 0; d < 3; ++d) {
        p.at[d] = p.at[d] * f.stride[d] + k.at[d] * f.dilation[d] - f.before[d];
        inside = inside && p.at[d] >= 0 && p.at[d] < f.x[d];
      }
      columns[row * places + i] = inside ? from[(p.at[0] * f.x[1] + p.at[1]) * f.x[2] + p.at[2]] : narrow<T>(0.f);
    }
  }
}

/// The window that reaches x at `at` with element k of the kernel along dimension d, or -1.
__device__ int64_t window_at(const ConvShape& f, int d, int64_t at, int64_t k) {
  const int64_t start = at + f.before[d] - k * f.dilation[d], window = start / f.stride[d];
  return start >= 0 && window * f.stride[d] == start && window < f.y[d] ? window : -1;
}

/// Each pixel of x [planes, x] sums its elements of the columns. A gather, since a scatter would take atomic additions,
/// whose order (and rounding) changes from run to run.
template <class T>
__global__ void fold_kernel(ConvShape f, int64_t planes, const T* columns, T* x) {
  const int64_t places = product(f.y), taps = product(f.kernel), pixels = product(f.x);
  for (int64_t plane = blockIdx.y; plane < planes; plane += gridDim.y)
    for (int64_t i = first_index(); i < pixels; i += index_step()) {
      const Coords p = unravel(i, f.x);
      const T* from = columns + plane * taps * places;
      Wide<T> sum = 0;
      for (int64_t kd = 0; kd < f.kernel[0]; ++kd) {
        const int64_t d = window_at(f, 0, p.at[0], kd);
        for (int64_t kh = 0; d >= 0 && kh < f.kernel[1]; ++kh) {
          const int64_t h = window_at(f, 1, p.at[1], kh);
          const T* line = from + ((kd * f.kernel[1] + kh) * f.kernel[2]) * places + (d * f.y[1] + h) * f.y[2];
          for (int64_t kw = 0; h >= 0 && kw < f.kernel[2]; ++kw)
            if (const int64_t w = window_at(f, 2, p.at[2], kw); w >= 0) sum += widen(line[kw * places + w]);
        }
      }
      x[plane * pixels + i] = narrow<T>(sum);
    }
}

/// unfold and fold for a number of planes (images times channels).
void unfold_planes(const Convolution& c, int64_t planes, const void* x, void* columns) {
  const RowGrid rows(planes * volume(c.kernel), volume(c.y_size));
  with_floating(c.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(unfold_kernel<T>, rows.grid, rows.block, 0, ConvShape(c), planes * volume(c.kernel),
           static_cast<const T*>(x), static_cast<T*>(columns));
  });
}
void fold_planes(const Convolution& c, int64_t planes, const void* columns, void* x) {
  const RowGrid rows(planes, volume(c.x_size));
  with_floating(c.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(fold_kernel<T>, rows.grid, rows.block, 0, ConvShape(c), planes, static_cast<const T*>(columns),
           static_cast<T*>(x));
  });
}

void unfold(const Convolution& c) { unfold_planes(c, c.n * c.in, c.data[kConvX], c.data[kConvY]); }
void fold(const Convolution& c) { fold_planes(c, c.n * c.in, c.data[kConvY], c.data[kConvX]); }

// ---- convolution ----------------------------------------------------------------------------------------------------

constexpr int64_t kMaxColumnBytes = int64_t{64} << 20;  // of workspace, unless one image needs more

/// As lib/cpu/conv.cpp, but with several images, or the groups of one image, as the batch of one product.
void convolve_by_gemm(ConvPart wanted, const Convolution& c) {
  const int64_t in = c.in / c.groups, out = c.out / c.groups;
  const int64_t rows = in * volume(c.kernel), places = volume(c.y_size), pixels = volume(c.x_size);
  // The weight's gradient is a sum over images, accumulated product by product (beta = 1). With several groups, the
  // batch of a product is one image's groups: images and groups together do not lie at one stride.
  const int64_t image_bytes = c.groups * rows * places * size_of(c.dtype);
  const bool many = c.groups == 1 && wanted != kConvWeight;
  const int64_t most = many ? std::clamp<int64_t>(kMaxColumnBytes / std::max<int64_t>(image_bytes, 1), 1, c.n) : 1;
  const Scratch<char> columns(most * image_bytes);
  const auto at = [&](ConvPart part, int64_t element) -> void* {
    return static_cast<char*>(c.data[part]) + element * size_of(c.dtype);
  };
  for (int64_t image = 0; image < c.n; image += most) {
    const int64_t images = std::min(most, c.n - image);
    void* const x = at(kConvX, image * c.in * pixels);
    void* const y = at(kConvY, image * c.out * places);
    Gemm product{.dtype = c.dtype,
                 .m = out,
                 .n = places,
                 .k = rows,
                 .a = c.data[kConvWeight],
                 .lda = rows,
                 .b = columns,
                 .ldb = places,
                 .c = y,
                 .ldc = places,
                 .batch = c.groups * images,
                 .stride_a = c.groups == 1 ? 0 : out * rows,
                 .stride_b = rows * places,
                 .stride_c = out * places};
    if (wanted != kConvX) unfold_planes(c, images * c.in, x, columns);
    if (wanted == kConvX) {
      product.trans_a = true, product.m = rows, product.k = out;
      product.b = y, product.c = columns;
      std::swap(product.stride_b, product.stride_c);
    } else if (wanted == kConvWeight) {
      product.trans_b = true, product.n = rows, product.k = places;
      product.a = y, product.lda = places, product.c = c.data[kConvWeight], product.ldc = rows;
      std::swap(product.stride_a, product.stride_c);
      product.beta = image > 0;
    }
    gemm(product);
    if (wanted == kConvX) fold_planes(c, images * c.in, columns, x);
  }
}

View row_of(DType dtype, void* data, int64_t count) {
  View row;
  row.data = data, row.numel = count, row.dtype = dtype;
  row.shape = {count}, row.strides = {1};
  return row;
}

/// The weight's gradient of half types, accumulated in float32 and rounded once: convolve_by_gemm would round after
/// each image.
void half_weight_by_gemm(const Convolution& c) {
  const int64_t counts[] = {c.n * c.in * volume(c.x_size), c.out * (c.in / c.groups) * volume(c.kernel),
                            c.n * c.out * volume(c.y_size)};
  const Scratch<float> x(counts[kConvX]), weight(counts[kConvWeight]), y(counts[kConvY]);
  Convolution wide = c;
  wide.dtype = kFloat32, wide.data = {x.data(), weight.data(), y.data()};
  for (const ConvPart part : {kConvX, kConvY})
    table().copy(row_of(c.dtype, c.data[part], counts[part]), row_of(kFloat32, wide.data[part], counts[part]));
  convolve_by_gemm(kConvWeight, wide);
  table().copy(row_of(kFloat32, weight.data(), counts[kConvWeight]),
               row_of(c.dtype, c.data[kConvWeight], counts[kConvWeight]));
}

/// Adds the bias to each channel: a row of y or, where channels lie last, a column.
template <class T>
__global__ void bias_kernel(int64_t rows, int64_t channels, int64_t width, bool columns, const T* bias, T* y) {
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    const Wide<T> of_row = columns ? Wide<T>(0) : widen(bias[row % channels]);
    for (int64_t i = first_index(); i < width; i += index_step())
      y[row * width + i] = narrow<T>(widen(y[row * width + i]) + (columns ? widen(bias[i]) : of_row));
  }
}
}  // namespace

void add_bias(const Convolution& c) {
  const bool columns = c.channels_last[kConvY];
  const int64_t places = volume(c.y_size), width = columns ? c.out : places, count = c.n * (columns ? places : c.out);
  const RowGrid rows(count, width);
  with_floating(c.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch(bias_kernel<T>, rows.grid, rows.block, 0, count, c.out, width, columns, static_cast<const T*>(c.bias),
           static_cast<T*>(c.data[kConvY]));
  });
}

namespace {

/// The weight, laid out as [out, in / groups, kernel…], where its channels lie last or second.
View weight_of(const Convolution& c, void* data, bool channels_last) {
  const int64_t in = c.in / c.groups, taps = volume(c.kernel);
  View weight;
  weight.data = data, weight.numel = c.out * in * taps, weight.dtype = c.dtype;
  weight.shape = {c.out, in, taps};
  weight.strides = {in * taps, channels_last ? 1 : taps, channels_last ? in : 1};
  weight.contiguous = !channels_last;
  return weight;
}

bool convolve_by_dnn(ConvPart wanted, const Convolution& c) {
  const RelaxedCaptureGuard guard(capturing());  // a new plan or its first run may load kernels
  if (!c.channels_last[kConvX]) return cudnn_convolve(wanted, c);
  // A plan for a weight whose channels lie second converts it in each run; some, of groups, use no tensor cores.
  Convolution last = c;
  last.channels_last[kConvWeight] = true;
  if (c.in == c.groups || volume(c.kernel) == 1) return cudnn_convolve(wanted, last);
  const Scratch<char> data(c.out * (c.in / c.groups) * volume(c.kernel) * size_of(c.dtype));
  const View weight = weight_of(c, c.data[kConvWeight], false), turned = weight_of(c, data.data(), true);
  last.data[kConvWeight] = turned.data;
  if (wanted != kConvWeight) table().copy(weight, turned);
  if (!cudnn_convolve(wanted, last)) return false;
  if (wanted == kConvWeight) table().copy(turned, weight);
  return true;
}

bool convolve(ConvPart wanted, const Convolution& c) {
  if (convolve_by_dnn(wanted, c)) return true;
  if (c.channels_last[kConvX]) return false;
  const bool rounds = wanted == kConvWeight && is_half(c.dtype);
  rounds ? half_weight_by_gemm(c) : convolve_by_gemm(wanted, c);
  if (c.bias && wanted == kConvY) add_bias(c);
  return true;
}

}  // namespace

void install_conv(KernelTable& table) {
  table.convolve = convolve;
  table.unfold = unfold;
  table.fold = fold;
}

}  // namespace reel::cuda
