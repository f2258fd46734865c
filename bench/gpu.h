#pragma once
// What the sides of bench/gpu.cpp share: sizes, and the losses before the first step. bench/torch reads them from here.
#include "bench/bench.h"

namespace bench::gpu {

constexpr double kResnetLoss = 7.090747, kEncoderLoss = 0.870225, kLongEncoderLoss = 0.852537, kLstmLoss = 0.019474;

/// A batch of square images for ResNet-18.
struct Images {
  int batch, size, classes;
};
constexpr Images kImages = {64, 224, 1000}, kSmallImages = {2, 32, 10};

/// A layer of a Transformer's encoder and the sequences that it sees.
struct Encoder {
  int dim, heads, hidden, batch, length;
};
constexpr Encoder kEncoder = {512, 8, 2048, 32, 128}, kSmallEncoder = {64, 4, 128, 2, 8};
/// As many vectors in sequences that are long enough for flash attention.
constexpr Encoder kLongEncoder = {512, 8, 2048, 4, 1024}, kSmallLongEncoder = {64, 4, 128, 1, 512};

/// An LSTM whose state is large, and the sequences that it sees.
struct Lstm {
  int in, hidden, batch, length;
};
constexpr Lstm kLstm = {1024, 1024, 64, 100}, kSmallLstm = {16, 16, 12, 3};

/// Of the matrices of a product.
constexpr int kGemm = 8192, kSmallGemm = 256;

/// A matrix of floats that is read and written `repeats` times in a measurement: next to its time, starting the work
/// and waiting for it are nothing.
struct Size {
  const char* name;
  int rows, columns, repeats;
  double gigabytes() const { return 4e-9 * rows * columns; }
};
constexpr Size kSizes[] = {{"64MiB", 16384, 1024, 20}, {"256MiB", 65536, 1024, 8}};
constexpr int kSmallRows = 64;

}  // namespace bench::gpu
