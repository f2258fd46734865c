#include "digits.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace {

struct Segment {
  double x1, y1, x2, y2;  // on a display that is 1 wide and 2 high
};
constexpr Segment kSegments[7] = {{0, 0, 1, 0}, {1, 0, 1, 1}, {1, 1, 1, 2}, {0, 2, 1, 2},
                                  {0, 1, 0, 2}, {0, 0, 0, 1}, {0, 1, 1, 1}};
// Which segments are lit, from the first at bit 0.
constexpr int kLit[10] = {0x3f, 0x06, 0x5b, 0x4f, 0x66, 0x6d, 0x7d, 0x07, 0x7f, 0x6f};

double distance(const Segment& s, double x, double y) {
  const double dx = s.x2 - s.x1, dy = s.y2 - s.y1;
  const double along = std::clamp(((x - s.x1) * dx + (y - s.y1) * dy) / (dx * dx + dy * dy), 0., 1.);
  return std::hypot(x - s.x1 - along * dx, y - s.y1 - along * dy);
}

}  // namespace

Digits::Digits(int64_t count, uint64_t seed) {
  constexpr int kSide = 28;
  std::mt19937_64 random(seed);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  std::vector<float> pixels;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    const int digit = static_cast<int>(random() % 10);
    const double scale = uniform(6, 9.5), slant = uniform(-0.35, 0.35), turn = uniform(-0.3, 0.3);
    const double center_x = uniform(11, 17), center_y = uniform(11, 17), thickness = uniform(0.1, 0.28);
    for (int row = 0; row < kSide; ++row)
      for (int column = 0; column < kSide; ++column) {
        const double right = (column - center_x) / scale, down = (row - center_y) / scale;
        const double y = right * std::sin(turn) + down * std::cos(turn) + 1;
        const double x = right * std::cos(turn) - down * std::sin(turn) + slant * (y - 1) + 0.5;
        double nearest = 10;
        for (int s = 0; s < 7; ++s)
          if (kLit[digit] >> s & 1) nearest = std::min(nearest, distance(kSegments[s], x, y));
        const double ink = std::clamp(1 - (nearest - thickness) * scale, 0., 1.) * uniform(0.6, 1);
        pixels.push_back(static_cast<float>(std::min(1., ink + std::abs(uniform(-0.25, 0.25)))));
      }
    labels.push_back(digit);
  }
  images_ = reel::tensor(pixels, {count, 1, kSide, kSide});
  labels_ = reel::tensor(labels);
}
