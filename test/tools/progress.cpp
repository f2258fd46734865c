#include "reel/progress.h"

#include <unistd.h>

#include <array>
#include <limits>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "reel/data.h"
#include "reel/ops.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

// What a bar writes.
class Output {
 public:
  Output() : file_(open_memstream(&text_, &size_)) {}
  ~Output() {
    std::fclose(file_);
    std::free(text_);
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  operator std::FILE*() const { return file_; }
  std::string text() const {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

}  // namespace

TEST_CASE("a bar on a terminal is drawn in place and wiped off", "[progress]") {
  Output out;
  {
    ProgressBar bar({.title = "epoch 3", .total = 4, .unit = "trees", .interval = 0, .file = out, .terminal = true});
    bar.update(1, "loss", 0.25);
    CHECK(out.text().substr(0, 9) == "\repoch 3 ");
    const size_t filled = count(out.text(), "█"), all = filled + count(out.text(), "░");
    CHECK(all >= 20);
    CHECK(all <= 30);
    CHECK(filled == (all + 3) / 4);  // also what has only begun
    CHECK_THAT(out.text(), Contains(" 25 %  loss 0.25  ") && Contains(" trees/s  0:00 left"));
    bar.update(4);
    CHECK(count(out.text(), "\r") == 2);
    CHECK_THAT(out.text(), Contains("100 %  loss 0.25"));
  }
  CHECK(count(out.text(), "\n") == 0);
  CHECK(out.text().substr(out.text().size() - 4) == "\r\033[K");
}

TEST_CASE("a log gets a line now and then", "[progress]") {
  Output out;
  {
    ProgressBar bar({.title = "epoch 3", .total = 4, .unit = "trees", .interval = 0, .file = out});
    bar.update(1), bar.update(2);
    bar.message([] { return "at a fork"; });
  }
  CHECK(count(out.text(), "\n") == 3);
  CHECK(count(out.text(), "\r") + count(out.text(), "\033") + count(out.text(), "█") == 0);
  CHECK_THAT(out.text(), Contains("epoch 3  25 %") && Contains("epoch 3  50 %  at a fork"));

  Output quiet;
  bool asked = false;
  {
    ProgressBar bar({.total = 4, .file = quiet});  // 30 seconds between two lines
    for (int i = 1; i <= 4; ++i) bar.update(i, "loss", [&] { return asked = true, 1.0; });
  }
  CHECK(quiet.text().empty());
  CHECK_FALSE(asked);  // a value that is not shown is not computed

  Output last;
  { ProgressBar({.total = 4, .leave = true, .file = last}).update(4); }
  CHECK(count(last.text(), "\n") == 1);
  CHECK_THAT(last.text(), Contains("100 %"));
}

TEST_CASE("all values are shown, whether update() stands before or after them", "[progress]") {
  const auto a = [] { return 1.5; };
  const auto b = [] { return 2.5; };
  const auto with_both = [](const Output& out) { return count(out.text(), "a 1.5  b 2.5"); };
  for (const bool terminal : {false, true})
    for (const double interval : {0., 2e-3}) {
      CAPTURE(terminal, interval);
      Output before, after, around;
      {
        const auto options = [&](Output& out) {
          return ProgressOptions{.total = 8, .interval = interval, .file = out, .terminal = terminal};
        };
        ProgressBar first(options(before)), second(options(after)), third(options(around));
        for (int i = 1; i <= 8; ++i) {
          if (interval > 0) usleep(1500);
          first.postfix("a", a).postfix("b", b).update();
          second.update(i).postfix("a", a).postfix("b", b);
          third.postfix("a", a).update(i).postfix("b", b);
        }
      }
      CHECK(with_both(before) >= 2);
      CHECK(with_both(after) >= 2);
      CHECK(with_both(around) >= 2);
      if (!terminal) CHECK(count(after.text(), "\n") <= 9);  // not a line for each value
    }

  // Values without a count are drawn, too.
  Output log;
  {
    ProgressBar bar({.interval = 0, .file = log});
    for (const double x : {1.5, 2.5, 3.5}) bar.postfix("x", x);
  }
  CHECK_THAT(log.text(), Contains("x 1.5") && Contains("x 2.5") && Contains("x 3.5"));
}

TEST_CASE("a line can be written while a bar stands, which can be closed", "[progress]") {
  Output out;
  ProgressBar bar({.total = 4, .interval = 0, .file = out, .terminal = true});
  bar.update();
  const size_t before = out.text().size();
  bar.write("epoch 1: done", out);
  CHECK_THAT(out.text().substr(before), Catch::Matchers::StartsWith("\r\033[Kepoch 1: done\n\r"));
  CHECK(count(out.text(), " 25 %") == 2);
  bar.close();
  const std::string closed = out.text();
  CHECK_THAT(closed, Catch::Matchers::EndsWith("\r\033[K"));
  bar.update(3).postfix("a", 1);
  bar.close();
  CHECK(out.text() == closed);
  bar.write("after", out);
  CHECK(out.text() == closed + "after\n");
}

TEST_CASE("a bar counts from what was done before, and knows the rate of all processes", "[progress]") {
  Output out;
  ProgressBar bar({.total = 1000, .initial = 900, .interval = 0, .processes = 4, .file = out, .terminal = false});
  CHECK(bar.rate() == 0);
  CHECK_FALSE(bar.seconds_left());
  bar.update(900);  // as many as at the start
  CHECK_THAT(out.text(), Contains(" 90 %") && !Contains("left") && !Contains("nan") && !Contains("inf"));
  usleep(20000);
  bar.update(950);
  const double rate = bar.rate(), left = *bar.seconds_left();
  CHECK(rate > 0);
  CHECK(rate <= 4 * 50 / 0.02);
  CHECK(left * rate / 4 == Approx(50).epsilon(0.2));
  bar.update(2000);  // more than announced
  CHECK(*bar.seconds_left() == 0);

  Output other;
  bool asked = false;
  {
    ProgressBar silent({.total = 10, .interval = 0, .leave = true, .rank = 3, .processes = 4, .file = other});
    silent.update(5, "loss", [&] { return asked = true, 1.0; });
  }
  CHECK(other.text().empty());
  CHECK_FALSE(asked);
}

TEST_CASE("a bar without a total shows the count, and one on a narrow terminal fits", "[progress]") {
  Output out;
  ProgressBar bar({.unit = "words", .interval = 0, .file = out, .terminal = false});
  bar.update(7);
  CHECK_THAT(out.text(), Contains("7 words  ") && Contains("words/s") && !Contains("%") && !Contains("left"));

  Output narrow;  // 80 columns, as the size of what is no terminal is not known
  {
    ProgressBar wide({.title = std::string(60, 'x'), .total = 3, .interval = 0, .file = narrow, .terminal = true});
    wide.update(1, "loss", 0.5);
  }
  CHECK(count(narrow.text(), "█") == 0);
  CHECK(narrow.text().find('\033') <= 1 + 79);
}

TEST_CASE("Progress closes its bar at the end of a loop", "[progress]") {
  Output out;
  const std::vector<int> numbers = {1, 2, 3};
  Progress range(numbers, {.interval = 0, .file = out, .terminal = true});
  for (const bool breaks : {false, true}) {
    for (const int n : range)
      if (breaks && n == 2) break;
    CHECK_THAT(out.text(), Catch::Matchers::EndsWith("\r\033[K"));
  }
  const size_t before = out.text().size();
  range.update(2);  // nothing is drawn between loops
  CHECK(out.text().size() == before);
  range.postfix("loss", tensor(0.5));
  for ([[maybe_unused]] const int n : range) range.postfix("loss", tensor(0.25));
  CHECK_THAT(out.text(), Contains("loss 0.25"));
}

TEST_CASE("Progress loops over any range", "[progress]") {
  Output out;
  const ProgressOptions options{.unit = "batches", .interval = 0, .file = out, .terminal = false};
  const std::vector<int> numbers = {1, 2, 3};
  int sum = 0;
  for (const int n : Progress(numbers, options)) sum += n;
  CHECK(sum == 6);
  CHECK(count(out.text(), "\n") == 4);  // the start, and each of three
  CHECK_THAT(out.text(), Contains("100 %"));

  std::vector<std::unique_ptr<int>> movable;  // and no copies
  movable.push_back(std::make_unique<int>(11));
  for (auto& n : Progress(std::move(movable), options)) sum += *n;
  CHECK(sum == 17);
  std::list<int> changed = {1, 2};
  for (int& n : Progress(changed, options)) n *= 10;
  CHECK(changed == std::list{10, 20});
  int array[] = {4, 5};
  for (int n : Progress(array, options)) sum += n;
  CHECK(sum == 26);

  data::DataLoader loader(data::TensorDataset(arange(10).view({10, 1}), arange(10)), {.batch_size = 4});
  Progress batches(loader, options);
  for (int epoch = 0; epoch < 2; ++epoch) {
    int64_t seen = 0;
    for (auto [x, y] : batches) {
      seen += y.numel();
      batches.postfix("seen", seen);
    }
    CHECK(seen == 10);
    CHECK(batches.done() == 3);
  }
  CHECK_THAT(out.text(), Contains("100 %  seen 10"));
  for (auto [x, y] : batches) {  // left early
    (void)x, (void)y;
    break;
  }
  CHECK(loader.epoch() == 3);
}

TEST_CASE("a bar refuses options that make no sense", "[progress]") {
  CHECK_THROWS_WITH(ProgressBar({.total = -1}), "ProgressBar: a total of -1");
  CHECK_THROWS_WITH(ProgressBar({.initial = -2}), "ProgressBar: initial is -2");
  CHECK_THROWS_WITH(ProgressBar({.interval = std::numeric_limits<double>::quiet_NaN()}),
                    "ProgressBar: an interval of nan seconds");
  CHECK_THROWS_WITH(ProgressBar({.rank = 2, .processes = 2}), "ProgressBar: rank 2 of 2 processes");
  CHECK_THROWS_WITH(ProgressBar({.file = nullptr}), "ProgressBar: no file");
}
