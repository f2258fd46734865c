#pragma once
#include "reel/profile.h"

namespace reel::profile {

/// An event from here to the end of the block. Costs the test of a flag if nothing is recorded.
class Span {
 public:
  Span(const char* name, Kind kind, int64_t bytes = 0) : open_(running()) {
    if (open_) [[unlikely]]
      begin(name, kind, bytes);
  }
  ~Span() {
    if (open_) [[unlikely]]
      end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  static void begin(const char* name, Kind kind, int64_t bytes);
  static void end();

 private:
  const bool open_;
};

}  // namespace reel::profile
