#include <fmt/format.h>

#include <algorithm>

#include "reel/batching.h"

namespace reel::batching {

std::string Report::table() const {
  std::vector<const Row*> sorted;
  for (const Row& row : rows) sorted.push_back(&row);
  std::stable_sort(sorted.begin(), sorted.end(), [](const Row* a, const Row* b) { return a->seconds > b->seconds; });
  std::string text = fmt::format("{:<32} {:>9} {:>8} {:>7} {:>8} {:>10} {:>9} {:>10} {:>8}\n", "call", "calls",
                                 "groups", "width", "alone %", "us a call", "gather %", "MB copied", "item()");
  for (const Row* row : sorted) {
    const auto part = [](double of, double all) { return all > 0 ? of / all : 0; };
    const auto calls = static_cast<double>(row->calls), grouped = static_cast<double>(row->calls - row->alone);
    text += fmt::format("{:<32} {:>9} {:>8} {:>7.1f} {:>8.1f} {:>10.2f} {:>9.1f} {:>10.1f} {:>8}\n", row->name,
                        row->calls, row->groups, part(grouped, static_cast<double>(row->groups)),
                        100 * part(static_cast<double>(row->alone), calls), 1e6 * part(row->seconds, grouped),
                        100 * part(row->gather_seconds, row->seconds), 1e-6 * static_cast<double>(row->gathered),
                        row->items);
  }
  for (const Unbatched& other : unbatched)
    text += fmt::format("{:<32} {:>9} not batched: {}\n", other.name, other.calls, other.reason);
  text +=
      fmt::format("{:.3f} ms in all, {:.3f} of them scheduling; {} switches, at most {} fibers, {} calls of item()\n",
                  1e3 * seconds, 1e3 * schedule_seconds, switches, most_fibers, items);
  return text;
}

}  // namespace reel::batching
