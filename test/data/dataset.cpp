#include "reel/data/dataset.h"

#include <set>

#include "reel/data/collate.h"
#include "reel/random.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

// A data set of one's own: squares.
struct Squares {
  int64_t n;
  int64_t size() const { return n; }
  int64_t get(int64_t i) const { return i * i; }
};

template <class D>
auto all(const D& dataset) {
  std::vector<data::SampleOf<D>> samples;
  for (int64_t i = 0; i < data::num_samples(dataset); ++i) samples.push_back(data::sample(dataset, i));
  return samples;
}

}  // namespace

TEST_CASE("vectors and classes and pointers to them are data sets") {
  const std::vector<int64_t> numbers{3, 1, 2};
  CHECK(all(numbers) == numbers);
  CHECK(all(Squares{4}) == std::vector<int64_t>{0, 1, 4, 9});
  CHECK(all(std::cref(numbers)) == numbers);
  CHECK(all(&numbers) == numbers);
  CHECK(all(std::make_shared<Squares>(Squares{3})) == std::vector<int64_t>{0, 1, 4});
  CHECK(all(std::vector<bool>{true, false}) == std::vector<bool>{true, false});
  CHECK(data::Dataset<std::vector<std::string>>);
  CHECK_FALSE(data::Dataset<int>);
  CHECK_THROWS_WITH(data::sample(numbers, 3), Equals("dataset: index 3 of 3 samples"));
  CHECK_THROWS_WITH(data::sample(numbers, -1), Equals("dataset: index -1 of 3 samples"));
}

TEST_CASE("data sets are mapped and transformed and joined and cut") {
  const Squares squares{5};
  CHECK(all(data::map(squares, [](int64_t x) { return -x; })) == std::vector<int64_t>{0, -1, -4, -9, -16});
  const std::vector<std::pair<int, std::string>> pairs{{1, "a"}, {2, "b"}};
  const auto halves = data::transform(pairs, [](int x) { return x / 2.0; });
  CHECK(all(halves) == std::vector<std::tuple<double, std::string>>{{0.5, "a"}, {1.0, "b"}});
  CHECK(all(data::transform(squares, [](int64_t x) { return x + 1; }))[2] == 5);

  const auto joined = data::concat(squares, std::vector<int64_t>{7}, std::vector<int64_t>{}, Squares{2});
  CHECK(all(joined) == std::vector<int64_t>{0, 1, 4, 9, 16, 7, 0, 1});
  CHECK_THROWS_WITH(joined.get(8), Equals("dataset: index 8 of 8 samples"));
  CHECK(all(data::concat(std::vector{Squares{2}, Squares{3}})) == std::vector<int64_t>{0, 1, 0, 1, 4});

  CHECK(all(data::subset(squares, {4, 0, 4})) == std::vector<int64_t>{16, 0, 16});
  CHECK_THROWS_WITH(data::subset(squares, {5}), Equals("dataset: index 5 of 5 samples"));
}

TEST_CASE("concat takes a vector of strings as samples, not as data sets of letters") {
  const std::vector<std::string> words{"ab", "c"};
  CHECK(all(data::concat(words)) == words);
  CHECK(all(data::concat(words, words)).size() == 4);
  CHECK(all(data::concat(std::vector{words, words})).size() == 4);
}

TEST_CASE("random_split cuts without overlap and the same way for a seed") {
  const Squares squares{11};
  const auto parts = data::random_split(squares, {0.5, 0.3, 0.2}, 1);
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].size() == 6);  // 5 and one of the two left over
  CHECK(parts[1].size() == 3);
  CHECK(parts[2].size() == 2);
  std::set<int64_t> seen;
  for (const auto& part : parts) seen.insert(part.indices().begin(), part.indices().end());
  CHECK(seen.size() == 11);
  CHECK(data::random_split(squares, {6, 3, 2}, 1)[1].indices() == parts[1].indices());
  CHECK(data::random_split(squares, {6, 3, 2}, 2)[0].indices() != parts[0].indices());
  CHECK(all(data::concat(parts)).size() == 11);
  CHECK_THROWS_WITH(data::random_split(squares, {6, 3}),
                    Equals("random_split: the lengths add up to 9, not to the 11 samples"));
  CHECK_THROWS_WITH(data::random_split(squares, {0.5, 0.4}),
                    Equals("random_split: the fractions add up to 0.9, not to 1"));
  CHECK_THROWS_WITH(data::random_split(squares, {12, -1}), Contains("a length is 12, of 11 samples"));
}

TEST_CASE("random_split leaves the thread's generator alone") {
  manual_seed(3);
  const float expected = rand({}).item<float>();
  manual_seed(3);
  data::random_split(Squares{5}, {2, 3});
  CHECK(rand({}).item<float>() == expected);
}

TEST_CASE("a TensorDataset yields rows one by one and many at once") {
  const Tensor x = arange(6).view({3, 2}), y = tensor({7, 8, 9});
  const data::TensorDataset dataset(x, y);
  CHECK(dataset.size() == 3);
  const auto [row, label] = dataset.get(1);
  CHECK(row.to_vector<int64_t>() == std::vector<int64_t>{2, 3});
  CHECK(label.item<int64_t>() == 8);
  const std::vector<int64_t> indices{2, 0};
  const auto [rows, labels] = dataset.get_batch(indices);
  CHECK(rows.to_vector<int64_t>() == std::vector<int64_t>{4, 5, 0, 1});
  CHECK(labels.to_vector<int64_t>() == std::vector<int64_t>{9, 7});
  CHECK(std::tuple_size_v<decltype(data::TensorDataset(x).get(0))> == 1);
  CHECK_THROWS_WITH(data::TensorDataset(x, tensor({1, 2})),
                    Equals("TensorDataset: tensors need a first dimension of one size, got [3, 2], [2]"));
  CHECK_THROWS_WITH(data::TensorDataset(x, full({}, 1)), Contains("got [3, 2], []"));
}

TEST_CASE("samples are collated by their type") {
  const data::DefaultCollate collate;
  CHECK(collate(std::vector<int>{1, 2}).dtype() == kInt64);
  CHECK(collate(std::vector<uint8_t>{1, 2}).dtype() == kInt64);
  CHECK(collate(std::vector<float>{1, 2}).dtype() == kFloat32);
  CHECK(collate(std::vector<double>{1, 2}).dtype() == kFloat64);
  CHECK(collate(std::vector<bool>{true, false}).to_vector<bool>() == std::vector<bool>{true, false});
  CHECK(collate(std::vector<Tensor>{ones({2}), zeros({2})}).shape() == Shape{2, 2});
  CHECK(collate(std::vector<std::string>{"a", "b"}) == std::vector<std::string>{"a", "b"});

  using Nested = std::tuple<Tensor, std::pair<int, std::string>>;
  const auto [x, rest] = collate(std::vector<Nested>{{ones({3}), {1, "a"}}, {ones({3}), {2, "b"}}});
  CHECK(x.shape() == Shape{2, 3});
  CHECK(rest.first.to_vector<int64_t>() == std::vector<int64_t>{1, 2});
  CHECK(rest.second == std::vector<std::string>{"a", "b"});
  CHECK_THROWS_AS(collate(std::vector<Tensor>{ones({2}), ones({3})}), Error);
}
