#include "samples/guide/guide.h"

#include <cmath>
#include <fstream>

namespace guide_data {
using namespace reel;

// [own]
struct Squares {  // any struct with size() and get(i)
  int64_t size() const { return 100; }
  std::pair<Tensor, Tensor> get(int64_t i) const {
    const auto x = static_cast<float>(i);
    return {tensor({x}), tensor({x * x})};
  }
};
// [/own]

void run() {
  std::ofstream("houses.csv")
      << "area,rooms,district,price\n50,2,harbour,100\n80,NA,centre,170\n120,5,centre,260\n90,3,suburb,180\n";

  // [loader]
  data::DataLoader loader(Squares(), {.batch_size = 32, .shuffle = true, .workers = 2});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto [x, y] : loader) std::cout << x.shape() << ' ';  // [32, 1] [32, 1] [32, 1] [4, 1]
  // [/loader]
  std::cout << '\n';
  REEL_CHECK(loader.size() == 4 && loader.epoch() == 2, "loader");

  const data::TensorDataset images(rand({8, 1, 28, 28}), arange(8));
  // [transform]
  using namespace data::transforms;
  auto shown = data::transform(images, Compose(RandomHorizontalFlip(), RandomCrop(28, {.padding = 2})));
  // [/transform]
  auto [image, label] = shown.get(3);
  REEL_CHECK(image.shape() == (Shape{1, 28, 28}) && label.item<int64_t>() == 3, "transform");

  // [csv]
  data::CsvTable table = data::read_csv("houses.csv");
  Tensor numbers = table.columns({"area", "rooms"}, {.missing = NAN, .missing_text = {"", "NA"}});
  Tensor prices = table.column("price");

  data::TokenCounts counts;
  counts.add_all(table.strings("district"));
  data::Vocabulary districts(counts);                        // 0 is "<unk>", for names that come up later
  Tensor ids = districts.encode(table.strings("district"));  // int64 [rows], for an nn::Embedding of districts.size()

  data::TensorDataset houses(numbers, ids, prices);
  auto parts = data::random_split(houses, {0.75, 0.25});  // parts[0] to train with, parts[1] to test
  Tensor means = nanmean(index_select(numbers, 0, tensor(parts[0].indices())), 0);  // of the former alone
  numbers.copy_(where(isnan(numbers), means, numbers));                             // houses holds the same tensor
  // [/csv]
  REEL_CHECK(numbers.shape() == (Shape{4, 2}) && parts[0].size() == 3 && parts[1].size() == 1, "csv");
  REEL_CHECK(!isnan(numbers).any().item<bool>() && ids.equal(tensor({2, 1, 1, 3})), "csv: ", ids);
  REEL_CHECK(data::Vocabulary::from_string(districts.to_string()).id("centre") == 1, "vocabulary");

  // [ragged]
  std::vector<std::pair<Tensor, Tensor>> sentences = {{tensor({4, 8, 1}), tensor({0, 1, 0})},
                                                      {tensor({5}), tensor({1})}};
  data::DataLoader batches(sentences, {.batch_size = 2}, data::RaggedCollate());
  for (auto [ids, tags] : batches) std::cout << ids.values.shape() << '\n';  // [4]: all ids, nothing padded
  // [/ragged]
}

}  // namespace guide_data

void data_sets() { guide_data::run(); }
