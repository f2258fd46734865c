#include "dataset.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <set>

#ifdef REEL_SAMPLES_IMAGE
#include "reel/image.h"
#endif

using namespace reel;
namespace fs = std::filesystem;

namespace {

template <data::Dataset D>
Images images_of(D dataset) {
  Images images;
  images.add(std::move(dataset));
  return images;
}

/// Of images uint8 [n, channels, height, width] and labels [n].
Images images_of(const Tensor& pixels, const Tensor& labels) {
  return images_of(data::map(data::TensorDataset(pixels, labels), [](const auto& sample) {
    const auto& [image, label] = sample;
    return std::pair(image, label.template item<int64_t>());
  }));
}

/// Ten shapes in any place, size and colour, on a ground of another colour, with noise.
Images drawn_shapes(int64_t count, uint64_t seed) {
  constexpr int kSide = 32;
  std::mt19937_64 random(seed);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  std::vector<uint8_t> pixels(static_cast<size_t>(count) * 3 * kSide * kSide);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    const int shape = static_cast<int>(random() % 10);
    labels.push_back(shape);
    const double x0 = uniform(11, 20), y0 = uniform(11, 20), size = uniform(6, 10);
    double ground[3], ink[3], contrast = 0;
    while (contrast < 120) {
      contrast = 0;
      for (int c = 0; c < 3; ++c) {
        ground[c] = uniform(20, 235), ink[c] = uniform(20, 235);
        contrast += std::abs(ground[c] - ink[c]);
      }
    }
    for (int row = 0; row < kSide; ++row)
      for (int column = 0; column < kSide; ++column) {
        const double x = (column - x0) / size, y = (row - y0) / size, u = std::abs(x), v = std::abs(y);
        const double radius = std::hypot(x, y), square = std::max(u, v);
        const bool inside[10] = {radius < 1,                            // disc
                                 radius < 1 && radius > 0.6,            // ring
                                 square < 0.85,                         // square
                                 square < 0.9 && square > 0.55,         // frame
                                 u + v < 1.1,                           // diamond
                                 v < 0.9 && u < (y + 0.9) / 1.8,        // triangle
                                 v < 0.9 && u < (0.9 - y) / 1.8,        // triangle on its tip
                                 square < 1 && std::min(u, v) < 0.3,    // plus
                                 square < 1 && std::abs(u - v) < 0.35,  // cross
                                 square < 1 && v < 0.35};               // bar
        for (int c = 0; c < 3; ++c) {
          const double value = (inside[shape] ? ink[c] : ground[c]) + uniform(-20, 20);
          pixels[static_cast<size_t>(((i * 3 + c) * kSide + row) * kSide + column)] = static_cast<uint8_t>(value);
        }
      }
  }
  return images_of(tensor(pixels, {count, 3, kSide, kSide}), tensor(labels));
}

bool has(const fs::path& folder, const std::string& name) {
  return fs::exists(folder / name) || fs::exists(folder / (name + ".gz"));
}

ImageSets load_folders(const fs::path& root, int64_t side) {
#ifdef REEL_SAMPLES_IMAGE
  REEL_CHECK(fs::exists(root / "train"), root.string(), " holds neither files of MNIST or CIFAR nor a folder train/");
  const bool test = fs::exists(root / "test");
  const data::ImageFolder train(root / "train"), held(root / (test ? "test" : "val"));
  REEL_CHECK(train.classes() == held.classes(), root.string(), ": train/ and ", test ? "test/" : "val/",
             " have folders of other names");
  const data::transforms::Compose cut{data::transforms::Resize(side), data::transforms::CenterCrop(side)};
  const auto images = [&](const data::ImageFolder& folder) {
    return images_of(
        data::map(folder, [cut](const auto& sample) { return std::pair(cut(sample.first), sample.second); }));
  };
  return {root.string(), images(train), images(held), static_cast<int64_t>(train.classes().size()), true};
#else
  reel::detail::fail(root.string(), ": no files of MNIST or CIFAR, and folders of ", side, " x ", side,
                     " images need reel::image, which this build lacks");
#endif
}

}  // namespace

ImageSets load_images(const std::string& folder, int64_t side, int64_t drawn) {
  if (folder.empty()) return {"drawn shapes", drawn_shapes(drawn, 1), drawn_shapes(1000, 2), 10};
  if (has(folder, "train-images-idx3-ubyte")) {
    const auto part = [&](bool train) {
      const data::Mnist images(folder, {.train = train});
      return images_of(images.images().unsqueeze(1), images.labels());
    };
    return {folder, part(true), part(false), 10};
  }
  if (has(folder, "data_batch_1.bin")) {
    const data::Cifar10 train(folder), test(folder, {.train = false});
    return {folder, images_of(train.images(), train.labels()), images_of(test.images(), test.labels()), 10};
  }
  if (has(folder, "train.bin")) {
    const data::Cifar100 train(folder), test(folder, {{.train = false}});
    return {folder, images_of(train.images(), train.labels()), images_of(test.images(), test.labels()), 100};
  }
  return load_folders(folder, side);
}

std::pair<std::vector<double>, std::vector<double>> channel_statistics(const Images& images) {
  std::vector<Tensor> some;
  const int64_t step = std::max<int64_t>(images.size() / 2000, 1);
  for (int64_t i = 0; i < images.size(); i += step) some.push_back(images.get(i).first.to(kFloat32) / 255);
  const Tensor all = stack(some);
  return {mean(all, {0, 2, 3}).to_vector<double>(), sqrt(var(all, {0, 2, 3})).to_vector<double>()};
}
