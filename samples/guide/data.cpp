#include "samples/guide/guide.h"

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
  std::ofstream("houses.csv") << "area,rooms,price\n50,2,100\n80,3,170\n120,5,260\n90,3,180\n";

  // [loader]
  data::DataLoader loader(Squares(), {.batch_size = 32, .shuffle = true, .workers = 2});
  for (int epoch = 0; epoch < 2; ++epoch)
    for (auto [x, y] : loader) std::cout << x.shape() << ' ';  // [32, 1] [32, 1] [32, 1] [4, 1]
  // [/loader]
  std::cout << '\n';
  REEL_CHECK(loader.size() == 4 && loader.epoch() == 2, "loader");

  // [csv]
  data::CsvTable table = data::read_csv("houses.csv");
  Tensor inputs = table.columns({"area", "rooms"}), prices = table.column("price");
  data::TensorDataset houses(inputs, prices);
  auto parts = data::random_split(houses, {0.75, 0.25});  // parts[0] to train with, parts[1] to test
  // [/csv]
  REEL_CHECK(inputs.shape() == (Shape{4, 2}) && parts[0].size() == 3 && parts[1].size() == 1, "csv");

  // [ragged]
  std::vector<std::pair<Tensor, Tensor>> sentences = {{tensor({4, 8, 1}), tensor({0, 1, 0})},
                                                      {tensor({5}), tensor({1})}};
  data::DataLoader batches(sentences, {.batch_size = 2}, data::RaggedCollate());
  for (auto [ids, tags] : batches) std::cout << ids.values.shape() << '\n';  // [4]: all ids, nothing padded
  // [/ragged]
}

}  // namespace guide_data

void data_sets() { guide_data::run(); }
