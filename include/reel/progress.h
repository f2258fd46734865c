#pragma once
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "reel/error.h"

#pragma GCC visibility push(default)
/// A bar that shows how far a loop is.
namespace reel {

/// Of ProgressBar and Progress.
struct ProgressOptions {
  std::string title = {};               ///< What stands in front: "epoch 3".
  std::optional<int64_t> total = {};    ///< How many there are in all. Without it there is no bar and no time left.
  std::string unit = "steps";           ///< What is counted, in the plural.
  int64_t initial = 0;                  ///< How many were done before, by a run that this one continues.
  std::optional<double> interval = {};  ///< Seconds between two lines: 0.1 on a terminal, 30 elsewhere.
  bool leave = false;                   ///< The last state stays on the terminal, or becomes the log's last line.
  int rank = 0;                         ///< Of the process, if several train one model: only rank 0 writes.
  int processes = 1;                    ///< How many processes there are: the rate is that of all of them.
  std::FILE* file = stderr;             ///< Where it is written.
  std::optional<bool> terminal = {};    ///< Whether `file` is a terminal; asked of the system if not given.
};

/// Says how far a long loop is, how fast it runs and how long it still takes: on a terminal a bar that is drawn in
/// place, elsewhere (in a log) a line now and then.
///
///   ProgressBar bar({.title = "training", .total = 10000, .unit = "trees"});
///   for (int64_t i = 0; i < 10000; ++i) { …; bar.update(i + 1, "loss", [&] { return loss.item<double>(); }); }
///
/// A call that draws nothing takes the time of one look at the clock. For use by one thread. A negative total, initial
/// or interval, fewer than one process and no file are Errors.
class ProgressBar {
 public:
  /// The time starts to count.
  explicit ProgressBar(ProgressOptions options);
  /// close().
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// So many are done, of those before `initial` and since; draws if it is time to.
  ProgressBar& update(int64_t done);
  /// One more is done.
  ProgressBar& update() { return update(done_ + 1); }
  /// So many are done, with a value to show. `value` is a number, a Tensor of one element, or a function that returns a
  /// number: the latter two are asked only when the bar is drawn, since on a GPU a value has to be waited for.
  template <class F>
  ProgressBar& update(int64_t done, std::string_view name, const F& value) {
    done_ = done;
    if (open_ || due()) show(name, value), close_turn(), draw();
    return *this;
  }
  /// Shows a value, as update() does, without a new count; before or after update(), and once for each name:
  ///
  ///   bar.postfix("loss", [&] { return loss.item<double>(); }).postfix("lr", adam.lr()).update();
  template <class F>
  ProgressBar& postfix(std::string_view name, const F& value) {
    if (wants(name)) show(name, value), draw_in_turn();
    return *this;
  }
  /// Shows a text of your own: what `text`, a function, returns. It is called only when the bar is drawn.
  template <std::invocable F>
  ProgressBar& message(const F& text) {
    if (wants("")) set("", text()), draw_in_turn();
    return *this;
  }
  /// Writes a line to `file` while the bar stands: the bar is wiped off its terminal, and drawn again below.
  void write(std::string_view line, std::FILE* file = stdout);
  /// What the destructor does: wipes the bar off the terminal, or leaves its last state there. Nothing is drawn after.
  void close();

  int64_t done() const { return done_; }  ///< How many are done.
  /// How many a second since the start, by all processes.
  double rate() const;
  /// Seconds that the rest takes at this rate; none without a total, or before anything is done.
  std::optional<double> seconds_left() const;

 private:
  // A turn begins when it is time to draw, and ends when update() or a name comes a second time: all values that are
  // given in it are asked for, wherever update() stands among them.
  struct Value {
    std::string name, text;
    bool fresh;  // of this turn
  };
  template <class Range>
  friend class Progress;
  void reopen() { closed_ = false; }
  void close_quietly() noexcept;
  bool due();
  void close_turn();
  void end_turn();
  void draw_in_turn();
  bool wants(std::string_view name);
  template <class F>
  void show(std::string_view name, const F& value) {
    if constexpr (std::is_arithmetic_v<F>)
      show_number(name, static_cast<double>(value));
    else if constexpr (requires { value.template item<double>(); })
      show_number(name, value.template item<double>());
    else
      show_number(name, static_cast<double>(value()));
  }
  void show_number(std::string_view name, double value);
  void set(std::string_view name, std::string text);
  void draw();
  std::string line(int columns) const;

  const ProgressOptions options_;
  const bool terminal_;
  const double interval_, start_;
  double next_;  // the time to draw again
  int64_t done_;
  std::vector<Value> values_;
  bool drawn_ = false, has_values_ = false, closed_ = false;
  bool open_ = false, counted_ = false;  // of the turn
};

/// A range that says how far the loop over it is:
///
///   Progress batches(loader, {.title = "epoch 1", .unit = "batches"});
///   for (auto [x, y] : batches) { …; batches.postfix("loss", [&] { return loss.item<double>(); }); }
///
/// or for (auto& tree : Progress(trees)) …. The bar is closed at the end of the loop, also by break. The total is the
/// range's size(), if it has one; with `initial` the range is what is left, and the total has to be given. A named
/// range is used where it is, and must outlive this; a temporary is moved in. A second loop counts from the start.
template <class Range>
class Progress : public ProgressBar {
  static_assert(!std::is_arithmetic_v<std::remove_cvref_t<Range>>,
                "Progress takes a range; for a count: ProgressBar bar({.total = n}), and bar.update() after each");

 public:
  /// The range is not touched before begin().
  explicit Progress(Range&& range, ProgressOptions options = {})
      : ProgressBar(with_total(range, std::move(options))), range_(std::forward<Range>(range)), first_(done()) {}

  /// What begin() returns: the range's own iterator, which counts.
  template <class I>
  class Iterator {
   public:
    ///@{
    /// Those of an input iterator, as far as a loop needs them. The last one closes the bar.
    Iterator(Iterator&& other) noexcept : it_(std::move(other.it_)), bar_(std::exchange(other.bar_, nullptr)) {}
    Iterator& operator=(Iterator&&) = delete;
    ~Iterator() {
      if (bar_) bar_->close_quietly();
    }
    decltype(auto) operator*() const { return *it_; }
    Iterator& operator++() {
      ++it_;
      bar_->update(bar_->done() + 1);
      return *this;
    }
    template <class End>
    bool operator==(const End& end) const {
      return it_ == end;
    }
    ///@}

   private:
    friend Progress;
    Iterator(I it, ProgressBar& bar) : it_(std::move(it)), bar_(&bar) {}
    I it_;
    ProgressBar* bar_;
  };

  /// Begins a loop, and the count.
  auto begin() {
    this->reopen();
    this->update(first_);
    using std::begin;
    return Iterator<decltype(begin(range_))>(begin(range_), *this);
  }
  /// The range's own end.
  auto end() {
    using std::end;
    return end(range_);
  }

 private:
  static ProgressOptions with_total(const std::remove_reference_t<Range>& range, ProgressOptions options) {
    if constexpr (requires { std::size(range); })
      if (!options.total && options.initial == 0) options.total = static_cast<int64_t>(std::size(range));
    return options;
  }

  Range range_;  // a reference to what has a name
  int64_t first_;
};
///@{
/// A named range is a reference.
template <class Range>
Progress(Range&&) -> Progress<Range>;
template <class Range>
Progress(Range&&, ProgressOptions) -> Progress<Range>;
///@}

}  // namespace reel
#pragma GCC visibility pop
