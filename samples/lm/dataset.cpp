#include "dataset.h"

#include <array>
#include <cmath>
#include <functional>
#include <random>
#include <string_view>
#include <vector>

using namespace reel;

namespace {

using Lines = std::function<void(const std::function<void(std::string_view)>&)>;
constexpr const char* kUnknown = "<unk>";

/// f(token) for each token of a line.
template <class F>
void for_each_token(std::string_view line, bool words, const F& f) {
  if (words)
    for (const std::string& word : data::split_words(line)) f(word);
  else
    for (const std::string_view letter : data::split_characters(line)) f(letter);
  f("\n");
}

/// Reads the lines twice: to count, unless the tokens are known, and to number.
Text make_text(const Lines& lines, const TokenOptions& o, const std::optional<data::Vocabulary>& known,
               const std::string& name) {
  Text text;
  if (known) {
    text.tokens = *known;
  } else {
    data::TokenCounts counts;
    lines([&](std::string_view line) { for_each_token(line, o.words, [&](std::string_view t) { counts.add(t); }); });
    text.tokens = data::Vocabulary(counts, {.min_count = o.min_count, .specials = {kUnknown}, .unknown = kUnknown});
  }
  std::vector<int32_t> ids;
  lines([&](std::string_view line) {
    for_each_token(line, o.words, [&](std::string_view t) { ids.push_back(static_cast<int32_t>(text.tokens.id(t))); });
  });
  REEL_CHECK(ids.size() >= 1000, name, ": only ", ids.size(), " tokens");
  text.ids = tensor(ids, {.device = kCPU});
  return text;
}

}  // namespace

Text read_text(const std::string& path, const TokenOptions& options, const std::optional<data::Vocabulary>& known) {
  return make_text([&](const auto& f) { data::for_each_line(path, f); }, options, known, path);
}

Text generate_text(int64_t sentences, uint64_t seed, const TokenOptions& options,
                   const std::optional<data::Vocabulary>& known) {
  constexpr std::array kNouns{"cat", "dog", "bird", "hen"}, kVerbs{"chase", "see", "like", "fear"};
  std::minstd_rand random(static_cast<std::minstd_rand::result_type>(seed + 1));
  double bits = 0;  // of all choices, which are uniform, and can be told from the text
  const auto pick = [&](size_t n) {
    bits += std::log2(static_cast<double>(n));
    return static_cast<size_t>(random() / 7 % n);
  };
  const auto noun = [&](bool many) { return std::string("the ") + kNouns[pick(kNouns.size())] + (many ? "s" : ""); };
  std::vector<std::string> list;
  for (int64_t i = 0; i < sentences; ++i) {
    const bool many = pick(2) == 1;
    std::string line = noun(many);
    while (pick(2) == 1) line += " near " + noun(pick(2) == 1);
    line += std::string(" ") + kVerbs[pick(kVerbs.size())] + (many ? "" : "s") + " " + noun(pick(2) == 1);
    list.push_back(line);
  }
  const auto lines = [&](const auto& f) {
    for (const std::string& line : list) f(line);
  };
  Text text = make_text(lines, options, known, "the made-up language");
  text.entropy = bits / static_cast<double>(text.ids.numel());
  return text;
}
