#include "reel/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace reel {
namespace {

constexpr double kTerminalInterval = 0.1, kLogInterval = 30;  // seconds

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

ProgressOptions checked(ProgressOptions o) {
  REEL_CHECK(!o.total || *o.total >= 0, "ProgressBar: a total of ", *o.total);
  REEL_CHECK(o.initial >= 0, "ProgressBar: initial is ", o.initial);
  REEL_CHECK(!o.interval || *o.interval >= 0, "ProgressBar: an interval of ", *o.interval, " seconds");
  REEL_CHECK(o.processes >= 1 && o.rank >= 0 && o.rank < o.processes, "ProgressBar: rank ", o.rank, " of ", o.processes,
             " processes");
  REEL_CHECK(o.file, "ProgressBar: no file");
  return o;
}

int columns_of(std::FILE* file) {
  winsize size{};
  return ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// 7:05, 2:07:05
std::string as_time(double seconds) {
  const auto whole = std::llround(std::min(seconds, 1e9)), minutes = whole / 60;
  char text[40];
  const int n = minutes < 60
                    ? std::snprintf(text, sizeof text, "%lld:%02lld", minutes, whole % 60)
                    : std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", minutes / 60, minutes % 60, whole % 60);
  return {text, static_cast<size_t>(n)};
}

// Of UTF-8; wide characters count as one.
bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }
int characters(const std::string& text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), starts_character));
}

}  // namespace

ProgressBar::ProgressBar(ProgressOptions options)
    : options_(checked(std::move(options))),
      terminal_(options_.terminal ? *options_.terminal : isatty(fileno(options_.file)) == 1),
      interval_(options_.interval ? *options_.interval
                : terminal_       ? kTerminalInterval
                                  : kLogInterval),
      start_(now()),
      next_(start_ + interval_),
      done_(options_.initial) {}

ProgressBar::~ProgressBar() { close_quietly(); }
void ProgressBar::close_quietly() noexcept {
  try {
    close();
  } catch (const std::bad_alloc&) {  // then the last line is missing
  }
}

void ProgressBar::close() {
  if (options_.rank > 0 || closed_) return;
  if (options_.leave || (open_ && !terminal_)) {
    draw();
    if (terminal_) std::fputs("\n", options_.file);
  } else if (terminal_ && drawn_) {
    std::fputs("\r\033[K", options_.file);
  }
  std::fflush(options_.file);
  closed_ = true, drawn_ = false;
  close_turn();
}

void ProgressBar::write(std::string_view line, std::FILE* file) {
  if (options_.rank > 0) return;
  const bool stands = terminal_ && drawn_;
  if (stands) std::fputs("\r\033[K", options_.file), std::fflush(options_.file);
  std::fprintf(file, "%.*s\n", static_cast<int>(line.size()), line.data());
  std::fflush(file);
  if (stands) draw();
}

bool ProgressBar::due() {
  if (options_.rank > 0 || closed_) return false;
  const double time = now();
  if (time < next_) return false;
  next_ = time + interval_;
  return true;
}

ProgressBar& ProgressBar::update(int64_t done) {
  if (open_ && counted_) end_turn();
  done_ = done;
  if (!open_ && !due()) return *this;
  open_ = counted_ = has_values_;
  has_values_ ? draw_in_turn() : draw();
  return *this;
}
void ProgressBar::close_turn() {
  open_ = counted_ = false;
  for (Value& value : values_) value.fresh = false;
}
// A log's line is written at the end of the turn, when all values are known.
void ProgressBar::end_turn() {
  close_turn();
  if (!terminal_) draw();
}
void ProgressBar::draw_in_turn() {
  if (terminal_) draw();
}

bool ProgressBar::wants(std::string_view name) {
  has_values_ = true;
  if (open_) {
    const auto same = [&](const Value& value) { return value.name == name && value.fresh; };
    if (std::none_of(values_.begin(), values_.end(), same)) return true;
    end_turn();
  }
  return open_ = due();
}

double ProgressBar::rate() const {
  const double seconds = now() - start_;
  return seconds > 0 ? static_cast<double>((done_ - options_.initial) * options_.processes) / seconds : 0;
}

std::optional<double> ProgressBar::seconds_left() const {
  if (!options_.total || done_ <= options_.initial) return {};
  const double each = (now() - start_) / static_cast<double>(done_ - options_.initial);
  return each * static_cast<double>(std::max<int64_t>(*options_.total - done_, 0));
}

void ProgressBar::show_number(std::string_view name, double value) {
  set(name, std::string(name) + fmt::format(" {:.4g}", value));
}
void ProgressBar::set(std::string_view name, std::string text) {
  const auto at = std::find_if(values_.begin(), values_.end(), [&](const Value& value) { return value.name == name; });
  if (at == values_.end())
    values_.push_back({std::string(name), std::move(text), true});
  else
    at->text = std::move(text), at->fresh = true;
}

// The bar is as long as there is room for: a line that wraps cannot be drawn over.
std::string ProgressBar::line(int columns) const {
  constexpr int kLongest = 30, kShortest = 5;
  std::string head = options_.title, rest;
  if (!head.empty()) head += ' ';
  const auto add = [&](const std::string& part) { rest += rest.empty() ? part : "  " + part; };
  if (options_.total)
    add(fmt::format("{:3.0f} %",
                    *options_.total ? 100 * static_cast<double>(done_) / static_cast<double>(*options_.total) : 100));
  else
    add(std::to_string(done_) + " " + options_.unit);
  for (const Value& value : values_) add(value.text);
  const double per_second = rate();
  add((per_second < 9.95 ? fmt::format("{:.2g} ", per_second) : fmt::format("{:.0f} ", per_second)) + options_.unit +
      "/s");
  if (const auto left = seconds_left()) add(as_time(*left) + " left");
  if (!terminal_) return head + rest;

  std::string bar;
  const int width = std::min(columns - 1 - characters(head + rest), kLongest);
  if (options_.total && width >= kShortest) {
    for (int i = 0; i < width; ++i) bar += i * *options_.total < done_ * width ? "█" : "░";
    bar += ' ';
  }
  std::string text = head + bar + rest;
  size_t end = 0;
  for (; end < text.size(); ++end)
    if (starts_character(text[end]) && columns-- == 0) break;
  text.resize(end);
  return text;
}

void ProgressBar::draw() {
  const std::string text = line(terminal_ ? columns_of(options_.file) - 1 : 0);
  std::fprintf(options_.file, terminal_ ? "\r%s\033[K" : "%s\n", text.c_str());
  std::fflush(options_.file);
  drawn_ = true;
}

}  // namespace reel
