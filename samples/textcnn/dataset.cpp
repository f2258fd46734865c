#include "dataset.h"

#include <array>
#include <filesystem>
#include <random>
#include <utility>

using namespace reel;

namespace {

Reviews make_reviews(const std::vector<std::pair<std::string, bool>>& sentences) {
  data::TokenCounts counts;
  for (const auto& [text, positive] : sentences) counts.add_all(data::split_words(text));
  Reviews reviews;
  reviews.words = data::Vocabulary(counts);
  for (const auto& [text, positive] : sentences) {
    Review review{{}, positive};
    for (const std::string& word : data::split_words(text)) review.words.push_back(reviews.words.id(word));
    reviews.items.push_back(std::move(review));
  }
  return reviews;
}

}  // namespace

Reviews read_reviews(const std::string& folder) {
  std::array<std::filesystem::path, 2> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::filesystem::path name = entry.path();
    if (name.extension() == ".gz") name.replace_extension();
    if (name.extension() == ".neg" || name.extension() == ".pos") files[name.extension() == ".pos"] = entry.path();
  }
  REEL_CHECK(!files[0].empty() && !files[1].empty(), folder, ": expected a file *.pos and a file *.neg");
  std::vector<std::pair<std::string, bool>> sentences;
  for (const bool positive : {false, true})
    data::for_each_line(files[positive], [&](std::string_view line) {
      if (!data::split_words(line).empty()) sentences.emplace_back(line, positive);
    });
  REEL_CHECK(sentences.size() >= 20, folder, ": only ", sentences.size(), " sentences");
  return make_reviews(sentences);
}

Reviews generate_reviews(int64_t count, uint64_t seed) {
  std::minstd_rand random(static_cast<std::minstd_rand::result_type>(seed + 1));
  const auto pick = [&](size_t n) { return static_cast<size_t>(random() / 7 % n); };
  std::vector<std::pair<std::string, bool>> sentences;
  for (int64_t i = 0; i < count; ++i) {
    const bool positive = pick(2) == 1;
    std::string text;
    for (size_t left = 4 + pick(12); left > 0; --left) {
      const bool opinion = left == 1 || pick(4) == 0, turned = opinion && pick(2) == 0;
      if (turned) text += "not ";
      text += (!opinion ? "thing" : positive != turned ? "good" : "bad") + std::to_string(pick(20)) + " ";
    }
    sentences.emplace_back(text, positive);
  }
  return make_reviews(sentences);
}
