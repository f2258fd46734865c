#include "samples/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "samples/ranks.h"

namespace {
constexpr double kTerminalInterval = 0.1, kLogInterval = 30;  // seconds
}

Progress::Progress(std::string title, int64_t total, std::string unit, int64_t before)
    : title_(std::move(title)),
      unit_(std::move(unit)),
      total_(total),
      before_(before),
      terminal_(isatty(STDERR_FILENO)),
      start_(std::chrono::steady_clock::now()),
      next_(terminal_ ? kTerminalInterval : kLogInterval) {}

Progress::~Progress() {
  if (terminal_ && reel::distributed::rank() == 0) std::fputs("\r\033[K", stderr);
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

bool Progress::due() {
  if (reel::distributed::rank() > 0 || seconds() < next_) return false;
  next_ = seconds() + (terminal_ ? kTerminalInterval : kLogInterval);
  return true;
}

double Progress::rate(int64_t done) const {
  return static_cast<double>((done - before_) * reel::distributed::world_size()) / seconds();
}

void Progress::draw(int64_t done, double loss) const {
  const double per_second = rate(done);
  const auto left =
      static_cast<int64_t>(static_cast<double>(total_ - done) / static_cast<double>(done - before_) * seconds() + 0.5);
  std::string bar;
  if (terminal_) {
    constexpr int kWidth = 30;
    for (int i = 0; i < kWidth; ++i) bar += i * total_ < done * kWidth ? "█" : "░";
  }
  std::fprintf(stderr, "%s%s %s %3.0f %%  loss %.4f  %.0f %s/s  %d:%02d left%s", terminal_ ? "\r" : "", title_.c_str(),
               bar.c_str(), 100.0 * static_cast<double>(done) / static_cast<double>(total_), loss, per_second,
               unit_.c_str(), static_cast<int>(left / 60), static_cast<int>(left % 60), terminal_ ? "\033[K" : "\n");
  std::fflush(stderr);
}
