#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "lib/data/parse.h"
#include "reel/autograd.h"
#include "reel/data/text.h"
#include "reel/data/word_vectors.h"
#include "reel/ops.h"

// What word vectors are asked: neighbours, analogies, similarities.
namespace reel::data {
namespace {

/// The rows with length 1; rows of zeros stay.
Tensor unit_rows(const Tensor& x) {
  return no_grad([&] { return normalize(x.to(kFloat32), 2, 1); });
}

std::optional<int64_t> look_up(const Vocabulary& words, std::string_view word) {
  const auto found = words.find(word);
  return found ? found : words.find(lower_ascii(word));
}

int64_t known(const Vocabulary& words, std::string_view word) {
  const auto found = words.find(word);
  REEL_CHECK(found, "WordVectors: there is no vector for '", word, "'");
  return *found;
}

/// Where each value stands in their order, from 0 on; equal ones share the mean of their places.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t first = 0, last; first < order.size(); first = last) {
    for (last = first; last < order.size() && values[order[last]] == values[order[first]];) ++last;
    for (size_t i = first; i < last; ++i) ranks[order[i]] = static_cast<double>(first + last - 1) / 2;
  }
  return ranks;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.) / n,
               mean_b = std::accumulate(b.begin(), b.end(), 0.) / n;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = a[i] - mean_a, y = b[i] - mean_b;
    ab += x * y, aa += x * x, bb += y * y;
  }
  return ab / std::sqrt(aa * bb);
}

}  // namespace

std::vector<Neighbour> WordVectors::nearest(const Tensor& direction, int64_t count,
                                            std::span<const int64_t> except) const {
  REEL_CHECK(direction.defined() && direction.shape() == Shape{vectors.size(1)}, "WordVectors: a direction of shape ",
             direction.defined() ? direction.shape().to_string() : "of an undefined tensor", " among vectors of ",
             vectors.size(1));
  NoGrad guard;
  const Tensor wanted = normalize(direction.to(kFloat32).to(vectors.device()).unsqueeze(0), 2, 1);
  const auto left_out = static_cast<int64_t>(except.size());
  const auto [cosines, ids] = topk(matmul(unit_rows(vectors), wanted.t()).squeeze(1),
                                   std::min(words.size(), std::max<int64_t>(count, 0) + left_out));
  std::vector<Neighbour> found;
  const std::vector<float> values = cosines.to_vector<float>();
  const std::vector<int64_t> rows = ids.to_vector<int64_t>();
  for (size_t i = 0; i < rows.size() && static_cast<int64_t>(found.size()) < count; ++i)
    if (std::find(except.begin(), except.end(), rows[i]) == except.end())
      found.push_back({words.token(rows[i]), values[i]});
  return found;
}

std::vector<Neighbour> WordVectors::nearest(std::string_view word, int64_t count) const {
  const int64_t id = known(words, word);
  return nearest(vectors[id].detach(), count, {&id, 1});
}

std::vector<Neighbour> WordVectors::analogy(std::string_view a, std::string_view b, std::string_view c,
                                            int64_t count) const {
  const std::array ids{known(words, a), known(words, b), known(words, c)};
  NoGrad guard;
  const auto unit = [&](int64_t id) { return unit_rows(vectors[id].unsqueeze(0)).squeeze(0); };
  return nearest(unit(ids[1]) - unit(ids[0]) + unit(ids[2]), count, ids);
}

AnalogyScore score_analogies(const WordVectors& vectors, std::span<const std::string> lines) {
  AnalogyScore score;
  std::array<std::vector<int64_t>, 4> columns;  // of the questions that can be asked
  for (const std::string& line : lines) {
    const std::vector<std::string> words = split_words(line);
    if (words.empty() || words[0][0] == ':') continue;
    REEL_CHECK(words.size() == 4, "score_analogies: '", line, "' is not four words");
    std::array<std::optional<int64_t>, 4> ids;
    bool all_known = true;
    for (size_t i = 0; i < 4; ++i) all_known = (ids[i] = look_up(vectors.words, words[i])) && all_known;
    ++(all_known ? score.asked : score.skipped);
    for (size_t i = 0; i < 4 && all_known; ++i) columns[i].push_back(*ids[i]);
  }
  if (score.asked == 0) return score;
  NoGrad guard;
  const Tensor units = unit_rows(vectors.vectors);
  std::array<Tensor, 4> ids;
  for (size_t i = 0; i < 4; ++i) ids[i] = tensor(columns[i], {.device = units.device()});
  constexpr int64_t kAtOnce = 256;
  for (int64_t first = 0; first < score.asked; first += kAtOnce) {
    const int64_t n = std::min(kAtOnce, score.asked - first);
    const auto part = [&](size_t i) { return ids[i].narrow(0, first, n); };
    const auto rows = [&](size_t i) { return index_select(units, 0, part(i)); };
    Tensor cosines = matmul(rows(1) - rows(0) + rows(2), units.t());
    for (size_t i = 0; i < 3; ++i)
      cosines = scatter(
          cosines, 1, part(i).unsqueeze(1),
          full({n, 1}, -std::numeric_limits<double>::infinity(), {.dtype = kFloat32, .device = units.device()}));
    score.right += sum(argmax(cosines, 1) == part(3)).item<int64_t>();
  }
  return score;
}

SimilarityScore score_similarities(const WordVectors& vectors, std::span<const std::string> lines) {
  SimilarityScore score;
  std::vector<int64_t> firsts, seconds;
  std::vector<double> given;
  for (const std::string& line : lines) {
    const std::vector<std::string> fields = split_words(line);
    if (fields.empty()) continue;
    double value;
    REEL_CHECK(fields.size() == 3 && parse_number(fields[2], value), "score_similarities: '", line,
               "' is not two words and a number");
    const auto a = look_up(vectors.words, fields[0]), b = look_up(vectors.words, fields[1]);
    if (!a || !b) {
      ++score.skipped;
      continue;
    }
    firsts.push_back(*a), seconds.push_back(*b), given.push_back(value);
  }
  score.pairs = static_cast<int64_t>(given.size());
  if (score.pairs == 0) return score;
  NoGrad guard;
  const Device device = vectors.vectors.device();
  const auto rows = [&](const std::vector<int64_t>& ids) {
    return unit_rows(index_select(vectors.vectors, 0, tensor(ids, {.device = device})));
  };
  const std::vector<double> cosines = sum(rows(firsts) * rows(seconds), 1).to(kFloat64).to_vector<double>();
  score.correlation = correlation(ranks(cosines), ranks(given));
  return score;
}

}  // namespace reel::data
