#include "lib/distributed/run/output.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "reel/error.h"

namespace reel::distributed::run {
namespace {

constexpr size_t kFull = 1 << 20;     // bytes that wait for a slow reader
constexpr size_t kChunk = 64 << 10;   // of a read, and of a write to a file
constexpr size_t kLongest = 1 << 20;  // of a line; a longer one is printed as several
constexpr size_t kKeptLength = 2000;  // of a line that is kept

}  // namespace

std::pair<Descriptor, Descriptor> make_pipe() {
  int ends[2];
  REEL_CHECK(::pipe2(ends, O_CLOEXEC) == 0, "cannot make a pipe: ", std::strerror(errno));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Sink::Sink(int fd) : fd_(fd), most_(PIPE_BUF) {
  struct stat status;
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) most_ = kChunk;
}

bool Sink::is_full() const { return queue_.size() - begin_ >= kFull; }

void Sink::write() {
  const ssize_t put = ::write(fd_, queue_.data() + begin_, std::min(most_, queue_.size() - begin_));
  if (put > 0) begin_ += static_cast<size_t>(put);
  if (put < 0 && errno != EAGAIN && errno != EINTR) {
    // The ranks go on, as they may have been told to save what they have by the signal that ended the reader.
    broken_ = true;
    begin_ = queue_.size();
  }
  if (begin_ == queue_.size() || begin_ >= kFull) {
    queue_.erase(0, begin_);
    begin_ = 0;
  }
}

Stream::Stream(Descriptor pipe, std::string prefix, Sink* sink, Descriptor log, size_t kept)
    : pipe_(std::move(pipe)), prefix_(std::move(prefix)), sink_(sink), log_(std::move(log)), kept_(kept) {}

void Stream::read() {
  char chunk[kChunk];
  const ssize_t got = ::read(pipe_.get(), chunk, sizeof chunk);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) return close();
  take({chunk, static_cast<size_t>(got)});
}

void Stream::close() {
  if (!line_.empty()) end_line();
  pipe_ = {};
  log_ = {};
}

void Stream::take(std::string_view text) {
  for (std::string_view rest = text; log_ && !rest.empty();) {
    const ssize_t put = ::write(log_.get(), rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      if (sink_)
        sink_->put("reel-run: cannot write to a file of --log-dir: " + std::string(std::strerror(errno)) + "\n");
      log_ = {};
      break;
    }
    rest.remove_prefix(static_cast<size_t>(put));
  }
  if (!sink_ && !kept_) return;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const size_t length = std::min({end, text.size(), kLongest - line_.size()});
    line_ += text.substr(0, length);
    text.remove_prefix(length);
    const bool ended = !text.empty() && text.front() == '\n';
    if (ended) text.remove_prefix(1);
    if (ended || line_.size() == kLongest) end_line();
  }
}

void Stream::end_line() {
  if (sink_) {
    sink_->put(prefix_);
    sink_->put(line_);
    sink_->put("\n");
  }
  if (kept_) {
    if (last_.size() == kept_) last_.pop_front();
    last_.push_back(line_.substr(0, kKeptLength));
  }
  line_.clear();
}

}  // namespace reel::distributed::run
