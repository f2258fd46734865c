#pragma once
#include <cstdint>
#include <vector>

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

/// Events that a fiber is in while another one runs.
struct OpenEvents {
  struct Event {
    const char* name;
    Kind kind;
  };
  std::vector<Event> events;
  uint64_t run = 0;
};
/// Ends the calling thread's open events, and keeps what resume_events() begins again, as events that are `continued`.
void pause_events(OpenEvents& open);
/// Begins them again; leaves `open` empty.
void resume_events(OpenEvents& open);

///@{
/// From the first use to the last release, functions that tell of each kernel take the place of the CPU's: Span, and
/// kernel_outside_of_trace of op_trace.h.
void use_stand_ins();
void release_stand_ins();
///@}

#pragma GCC visibility push(default)
/// The time now on the clock of events, in nanoseconds.
int64_t now();
/// Records an event of kCommunication, if anything is recorded. Names have to be few.
void add_message(const char* name, int64_t begin, int64_t end, int64_t bytes);
/// Which process of a job this is, for the name of REEL_PROFILE's file.
void set_rank(int rank);
#pragma GCC visibility pop

}  // namespace reel::profile
