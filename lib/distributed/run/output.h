#pragma once
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "lib/distributed/descriptor.h"

namespace reel::distributed::run {

/// A pipe whose ends are not inherited; throws reel::Error.
std::pair<Descriptor, Descriptor> make_pipe();

/// reel-run's own stdout or stderr. Whoever reads it may be slow, and must not keep signals and deaths from being
/// noticed: text is queued, and written when there is room for it.
class Sink {
 public:
  explicit Sink(int fd);
  int fd() const { return fd_; }
  void put(std::string_view text) {
    if (!broken_) queue_ += text;
  }
  bool has_text() const { return begin_ < queue_.size(); }
  bool is_full() const;  ///< No more should be read for it.
  void write();          ///< Once, when poll() says that there is room.

 private:
  const int fd_;
  size_t most_;  // bytes that a write is sure not to block for
  std::string queue_;
  size_t begin_ = 0;     // of what is not yet written
  bool broken_ = false;  // nobody reads it any longer
};

/// One output stream of a rank: lines go to a sink, with the rank before them, and bytes as they are to a file.
class Stream {
 public:
  /// `sink` and `log` may be missing. `kept` is the number of last lines to keep.
  Stream(Descriptor pipe, std::string prefix, Sink* sink, Descriptor log, size_t kept);
  int fd() const { return pipe_.get(); }  ///< -1 at the end of the stream.
  bool is_wanted() const { return pipe_ && !(sink_ && sink_->is_full()); }
  void read();   ///< Once, when poll() says that there is something.
  void close();  ///< Prints a last line that has no end.
  const std::deque<std::string>& last_lines() const { return last_; }

 private:
  void take(std::string_view text);
  void end_line();

  Descriptor pipe_;
  const std::string prefix_;
  Sink* const sink_;
  Descriptor log_;
  const size_t kept_;
  std::string line_;  // so far
  std::deque<std::string> last_;
};

}  // namespace reel::distributed::run
