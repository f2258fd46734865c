#pragma once
#include <cstdint>
#include <string>
#include <vector>

/// How predictions compare with the truth, over all sentences that were added.
class Score {
 public:
  /// With `entities` tags are O, B-X and I-X, and what counts are whole entities: an entity is right when its first and
  /// last word and its type are. I-X after another type or O begins one, too (IOB1).
  explicit Score(bool entities) : entities_(entities) {}
  void add(const std::vector<std::string>& predicted, const std::vector<std::string>& truth);

  double accuracy() const { return percent(right_tags_, tags_); }
  double precision() const { return percent(right_, predicted_); }
  double recall() const { return percent(right_, true_); }
  double f1() const { return percent(2 * right_, predicted_ + true_); }
  /// What models are chosen by: F1 of entities, or else accuracy.
  double value() const { return entities_ ? f1() : accuracy(); }
  std::string to_string() const;

 private:
  static double percent(int64_t part, int64_t all) {
    return all ? 100 * static_cast<double>(part) / static_cast<double>(all) : 0;
  }
  bool entities_;
  int64_t tags_ = 0, right_tags_ = 0, right_ = 0, predicted_ = 0, true_ = 0;
};
