#include "score.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <tuple>

#include "reel/reel.h"

namespace {

using Entity = std::tuple<size_t, size_t, std::string>;  // first word, one past the last, type

std::vector<Entity> entities_of(const std::vector<std::string>& tags) {
  std::vector<Entity> entities;
  std::string open;  // the type of the entity that the word before belongs to
  for (size_t i = 0; i < tags.size(); ++i) {
    const std::string type = tags[i] == "O" ? "" : tags[i].substr(std::min<size_t>(2, tags[i].size()));
    const bool begins = !type.empty() && (tags[i][0] == 'B' || type != open);
    if (begins)
      entities.emplace_back(i, i + 1, type);
    else if (!type.empty())
      std::get<1>(entities.back()) = i + 1;
    open = type;
  }
  return entities;
}

}  // namespace

void Score::add(const std::vector<std::string>& predicted, const std::vector<std::string>& truth) {
  REEL_CHECK(predicted.size() == truth.size(), "score: ", predicted.size(), " predicted tags for ", truth.size(),
             " words");
  tags_ += static_cast<int64_t>(truth.size());
  for (size_t i = 0; i < truth.size(); ++i) right_tags_ += predicted[i] == truth[i];
  if (!entities_) return;
  const std::vector<Entity> guesses = entities_of(predicted), facts = entities_of(truth);
  std::vector<Entity> both;
  std::set_intersection(guesses.begin(), guesses.end(), facts.begin(), facts.end(), std::back_inserter(both));
  right_ += static_cast<int64_t>(both.size());
  predicted_ += static_cast<int64_t>(guesses.size());
  true_ += static_cast<int64_t>(facts.size());
}

std::string Score::to_string() const {
  char text[120];
  if (entities_)
    std::snprintf(text, sizeof text, "F1 %5.2f  precision %5.2f  recall %5.2f  tags %5.2f %%", f1(), precision(),
                  recall(), accuracy());
  else
    std::snprintf(text, sizeof text, "accuracy %5.2f %%", accuracy());
  return text;
}
