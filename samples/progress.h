#pragma once
#include <chrono>
#include <cstdint>
#include <string>

/// What a long loop tells on stderr: on a terminal a bar, drawn in place and wiped off at the end; in a log a line now
/// and then.
class Progress {
 public:
  /// `unit` is what is counted, for the speed: "trees". So many of this process's were done `before`.
  Progress(std::string title, int64_t total, std::string unit, int64_t before = 0);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// loss() is called when it is to be drawn: on a GPU it has to be waited for.
  template <class F>
  void update(int64_t done, const F& loss) {
    if (due()) draw(done, loss());
  }
  /// How many a second, up to `done`: of all processes, if there are several.
  double rate(int64_t done) const;

 private:
  double seconds() const;  // since the start
  bool due();
  void draw(int64_t done, double loss) const;

  const std::string title_, unit_;
  const int64_t total_, before_;
  const bool terminal_;
  const std::chrono::steady_clock::time_point start_;
  double next_;  // the time to draw again
};
