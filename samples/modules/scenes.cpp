#include "scenes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "reel/error.h"

using namespace reel;

namespace {

constexpr int kCell = 8;  // pixels
constexpr int kMaxCount = 4;
constexpr int kFewestScenes = 64;  // among fewer, some questions find none that they fit
constexpr std::array kColors{"red", "green", "blue", "yellow"}, kShapes{"circle", "square", "triangle", "cross"};
constexpr int kPaint[4][3] = {{200, 50, 50}, {50, 190, 60}, {60, 80, 210}, {200, 190, 50}};
constexpr std::array kRelations{"left", "right", "above", "below"};

// A set of cells, a bit each, row by row.
using Cells = uint64_t;

struct Scene {
  Cells of_color[4] = {}, of_shape[4] = {};
  Cells things() const { return of_color[0] | of_color[1] | of_color[2] | of_color[3]; }
};

// A program and what it finds.
struct Found {
  Program program;
  Cells cells;
};

// The standard's distributions would give other numbers in other libraries.
class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {}
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool coin() { return below(2) == 0; }
  double between(double low, double high) {
    return low + (high - low) * std::ldexp(static_cast<double>(random_()), -64);
  }

 private:
  std::mt19937_64 random_;
};

class Generator {
 public:
  explicit Generator(const ScenesOptions& options) : size_(options.grid), chance_(options.seed) {
    for (const char* yes : {"yes", "no"}) answers_.emplace_back(Program::kExists, "", yes);
    for (int n = 0; n <= kMaxCount; ++n) answers_.emplace_back(Program::kCount, "", std::to_string(n));
    for (const char* color : kColors) answers_.emplace_back(Program::kDescribe, "color", color);
    for (const char* shape : kShapes) answers_.emplace_back(Program::kDescribe, "shape", shape);
    for (int i = 0; i < size_ * size_; ++i) {
      if (i % size_ > 0) not_first_ |= Cells(1) << i;
      if (i % size_ < size_ - 1) not_last_ |= Cells(1) << i;
      all_ |= Cells(1) << i;
    }
  }

  Part part(int questions, int max_depth) {
    std::vector<Scene> scenes(static_cast<size_t>(std::max(kFewestScenes, (questions + 3) / 4)));
    std::vector<uint8_t> pixels;
    for (Scene& scene : scenes) scene = draw(pixels);
    Part part{tensor(pixels, {static_cast<int64_t>(scenes.size()), 3, size_ * kCell, size_ * kCell}), {}};
    for (int i = 0; i < questions; ++i) {
      const Answer& wanted = answers_[static_cast<size_t>(i / max_depth) % answers_.size()];
      part.questions.push_back(question(scenes, 1 + i % max_depth, wanted));
    }
    return part;
  }

 private:
  struct Answer {
    Program::Kind kind;
    std::string word, answer;
    Answer(Program::Kind kind_, std::string word_, std::string answer_)
        : kind(kind_), word(std::move(word_)), answer(std::move(answer_)) {}
  };

  /// A question of that depth and with that answer, about one of the scenes.
  Question question(const std::vector<Scene>& scenes, int depth, const Answer& wanted) {
    constexpr int kTries = 200000;
    for (int i = 0; i < kTries; ++i) {
      const int number = chance_.below(static_cast<int>(scenes.size()));
      const Scene& scene = scenes[static_cast<size_t>(number)];
      auto found = find(scene, depth);
      if (found && answer(scene, found->cells, wanted) == wanted.answer && !tells(found->program, wanted.word))
        return {number, wanted.answer, {wanted.kind, wanted.word, {std::move(found->program)}}};
    }
    reel::detail::fail("scenes: no question of depth ", depth, " with the answer ", wanted.answer, " in ", kTries,
                       " attempts; more scenes or a larger grid allow for more questions");
  }

  std::string answer(const Scene& scene, Cells cells, const Answer& wanted) const {
    if (wanted.kind == Program::kExists) return cells ? "yes" : "no";
    if (wanted.kind == Program::kCount) return std::to_string(std::popcount(cells));
    if (std::popcount(cells) != 1) return "";  // the color of what?
    for (size_t i = 0; i < 4; ++i) {
      if (wanted.word == "color" && (cells & scene.of_color[i])) return kColors[i];
      if (wanted.word == "shape" && (cells & scene.of_shape[i])) return kShapes[i];
    }
    return "";
  }

  /// A random program of that depth, of which no part is idle; or nothing, where the scene has none that is found.
  std::optional<Found> find(const Scene& scene, int depth) {
    if (depth == 1) {
      const size_t i = static_cast<size_t>(chance_.below(4));
      if (chance_.coin()) return Found{{Program::kFind, kColors[i], {}}, scene.of_color[i]};
      return Found{{Program::kFind, kShapes[i], {}}, scene.of_shape[i]};
    }
    const auto part = find(scene, depth - 1);
    if (!part || !part->cells) return {};
    constexpr int kTries = 8;
    for (int i = 0; i < kTries; ++i) {
      if (chance_.coin()) return relocate(scene, *part);
      if (auto found = join(*part, find(scene, 1 + chance_.below(std::min(depth - 1, 2))))) return found;
    }
    return {};
  }

  Found relocate(const Scene& scene, const Found& part) {
    const int relation = chance_.below(4);
    return {{Program::kRelocate, kRelations[static_cast<size_t>(relation)], {part.program}},
            neighbours(part.cells, relation) & scene.things()};
  }

  std::optional<Found> join(const Found& a, const std::optional<Found>& b) {
    if (!b || !b->cells) return {};
    const bool both = chance_.coin();
    const Cells cells = both ? a.cells & b->cells : a.cells | b->cells;
    if (cells == a.cells || cells == b->cells) return {};
    for (const char* what : {"color", "shape"})
      if (both && tells(a.program, what) && tells(b->program, what)) return {};  // nothing is both red and green
    std::vector<Program> parts = {a.program, b->program};
    if (chance_.coin()) std::swap(parts[0], parts[1]);
    return Found{{both ? Program::kAnd : Program::kOr, "", std::move(parts)}, cells};
  }

  /// Does the program itself say the color, or the shape, of what it finds?
  static bool tells(const Program& program, std::string_view what) {
    const auto told = [&](const Program& part) { return tells(part, what); };
    if (program.kind == Program::kFind) return what == (names_color(program.word) ? "color" : "shape");
    if (program.kind == Program::kAnd) return std::any_of(program.parts.begin(), program.parts.end(), told);
    return program.kind == Program::kOr && std::all_of(program.parts.begin(), program.parts.end(), told);
  }
  static bool names_color(std::string_view word) {
    return std::find(kColors.begin(), kColors.end(), word) != kColors.end();
  }

  /// The cells that are left of, right of, above or below those.
  Cells neighbours(Cells cells, int relation) const {
    switch (relation) {
      case 0: return (cells & not_first_) >> 1;
      case 1: return (cells & not_last_) << 1 & all_;
      case 2: return cells >> size_;
      default: return cells << size_ & all_;
    }
  }

  /// A random scene; its pixels [3, height, width] are appended.
  Scene draw(std::vector<uint8_t>& pixels) {
    Scene scene;
    const int side = size_ * kCell;
    const size_t at = pixels.size();
    pixels.resize(at + static_cast<size_t>(3 * side * side));
    const auto paint = [&](int channel, int y, int x, double value) {
      pixels[at + static_cast<size_t>((channel * side + y) * side + x)] =
          static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
    };
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x)
        for (int channel = 0; channel < 3; ++channel) paint(channel, y, x, chance_.between(0, 40));
    const double density = chance_.between(0.4, 0.9);
    for (int i = 0; i < size_ * size_; ++i) {
      if (chance_.between(0, 1) > density) continue;
      const int color = chance_.below(4), shape = chance_.below(4);
      scene.of_color[color] |= Cells(1) << i, scene.of_shape[shape] |= Cells(1) << i;
      const double radius = chance_.between(2.7, 3.5), light = chance_.between(-40, 40);
      const double center = (kCell - 1) / 2.0, dy = chance_.between(-0.5, 0.5), dx = chance_.between(-0.5, 0.5);
      for (int y = 0; y < kCell; ++y)
        for (int x = 0; x < kCell; ++x) {
          if (!covers(shape, (y - center - dy) / radius, (x - center - dx) / radius)) continue;
          for (int channel = 0; channel < 3; ++channel)
            paint(channel, i / size_ * kCell + y, i % size_ * kCell + x,
                  kPaint[color][channel] + light + chance_.between(-15, 15));
        }
    }
    return scene;
  }

  /// Is the point within the shape, which reaches from -1 to 1?
  static bool covers(int shape, double y, double x) {
    switch (shape) {
      case 0: return x * x + y * y <= 1.05;
      case 1: return std::max(std::abs(x), std::abs(y)) <= 0.9;
      case 2: return y <= 0.95 && std::abs(x) <= (y + 1) / 2 + 0.1;
      default: return std::min(std::abs(x), std::abs(y)) <= 0.3 && std::max(std::abs(x), std::abs(y)) <= 1;
    }
  }

  const int size_;
  Chance chance_;
  std::vector<Answer> answers_;
  Cells all_ = 0, not_first_ = 0, not_last_ = 0;
};

}  // namespace

Corpus generate_scenes(const ScenesOptions& options) {
  REEL_CHECK(options.train > 0 && options.dev > 0 && options.test > 0, "scenes: every part needs a question");
  REEL_CHECK(options.grid >= 3 && options.grid <= 6, "scenes: the grid must have between 3 and 6 rows, got ",
             options.grid);
  REEL_CHECK(
      options.train_depth >= 1 && options.train_depth <= 20 && options.test_depth >= 1 && options.test_depth <= 20,
      "scenes: programs are between 1 and 20 deep, got ", options.train_depth, " and ", options.test_depth);
  REEL_CHECK(options.train_depth > 1 || options.test_depth == 1,
             "scenes: programs of depth 1 teach nothing of left, right, above and below, which deeper ones need");
  Generator generator(options);
  // The training set comes last, so that its size does not change what is held out.
  Corpus corpus;
  corpus.test = generator.part(options.test, options.test_depth);
  corpus.dev = generator.part(options.dev, options.train_depth);
  corpus.train = generator.part(options.train, options.train_depth);
  return corpus;
}
