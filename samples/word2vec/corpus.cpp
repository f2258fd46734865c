#include "corpus.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>

using namespace reel;

namespace {

using Lines = std::function<void(const std::function<void(std::string_view)>&)>;

/// Reads the lines twice: to count, and to number.
Corpus make_corpus(const Lines& lines, int64_t min_count, const std::string& name) {
  data::TokenCounts counts;
  lines([&](std::string_view line) { counts.add_all(data::split_words(line)); });
  Corpus corpus;
  corpus.words = data::Vocabulary(counts, {.min_count = min_count, .specials = {}, .unknown = {}});
  REEL_CHECK(corpus.words.size() >= 2, name, ": fewer than 2 words occur ", min_count, " times");
  lines([&](std::string_view line) {
    for (const std::string& word : data::split_words(line))
      if (const auto id = corpus.words.find(word)) corpus.ids.push_back(static_cast<int32_t>(*id));
    if (corpus.size() > corpus.begins.back()) corpus.begins.push_back(corpus.size());
  });
  return corpus;
}

constexpr std::array kTopics{"ka", "ku", "pa", "pi", "ra", "ro", "sa", "su", "ta", "ti", "va", "vo"};
constexpr std::array kRoles{"to", "mi", "le"};

}  // namespace

Corpus read_corpus(const std::string& path, int64_t min_count) {
  std::vector<std::filesystem::path> files;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().filename().string().find(".txt") != std::string::npos) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
  } else {
    files.push_back(path);
  }
  REEL_CHECK(!files.empty(), path, ": no .txt file");
  return make_corpus(
      [&](const auto& f) {
        for (const auto& file : files) data::for_each_line(file, f);
      },
      min_count, path);
}

Corpus generate_corpus(int64_t sentences, uint64_t seed) {
  std::minstd_rand random(static_cast<std::minstd_rand::result_type>(seed + 1));
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() / 7 % n); };
  std::vector<std::string> text;
  for (int64_t i = 0; i < sentences; ++i) {
    const std::string topic = kTopics[pick(kTopics.size())], role = kRoles[pick(kRoles.size())];
    std::string line;
    for (int at = 0; at < 9; ++at) {
      const std::string number = std::to_string(pick(8));
      line += (at == 4 ? topic + role : (pick(2) ? topic + "x" : role + "y") + number) + " ";
    }
    text.push_back(line);
  }
  return make_corpus(
      [&](const auto& f) {
        for (const std::string& line : text) f(line);
      },
      1, "the made-up language");
}

std::vector<std::string> generated_questions() {
  std::vector<std::string> questions;
  for (const std::string a : kTopics)
    for (const std::string b : kTopics)
      for (const std::string role : kRoles)
        for (const std::string other : kRoles)
          if (a != b && role != other)
            questions.push_back(a + role + " " + a + other + " " + b + role + " " + b + other);
  return questions;
}

Subsampling::Subsampling(const Corpus& corpus, double threshold) {
  for (const int64_t count : corpus.words.counts()) {
    const double often = threshold * static_cast<double>(corpus.size()) / static_cast<double>(count);
    const double keep = threshold > 0 ? std::min(std::sqrt(often) + often, 1.0) : 1.0;
    keep_.push_back(static_cast<uint32_t>(keep * std::minstd_rand::max()));
  }
}

void Subsampling::sample(std::span<const int32_t> line, std::minstd_rand& random, std::vector<int64_t>& kept) const {
  kept.clear();
  for (const int32_t id : line)
    if (random() <= keep_[static_cast<size_t>(id)]) kept.push_back(id);
}
