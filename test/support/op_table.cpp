#include "test/support/op_table.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

#include "reel/ops.h"

// THE table of ops, put together from the families' (test/ops). The tests that run over it are in test/ops/check.cpp.
namespace reel {

// Absent from a program that is built of some tests only.
[[gnu::weak]] const std::vector<Row>& activation_rows();
[[gnu::weak]] const std::vector<Row>& attention_rows();
[[gnu::weak]] const std::vector<Row>& conv_rows();
[[gnu::weak]] const std::vector<Row>& crf_rows();
[[gnu::weak]] const std::vector<Row>& ctc_rows();
[[gnu::weak]] const std::vector<Row>& distance_rows();
[[gnu::weak]] const std::vector<Row>& embedding_rows();
[[gnu::weak]] const std::vector<Row>& index_rows();
[[gnu::weak]] const std::vector<Row>& join_rows();
[[gnu::weak]] const std::vector<Row>& linalg_rows();
[[gnu::weak]] const std::vector<Row>& loss_rows();
[[gnu::weak]] const std::vector<Row>& norm_rows();
[[gnu::weak]] const std::vector<Row>& pad_rows();
[[gnu::weak]] const std::vector<Row>& pointwise_rows();
[[gnu::weak]] const std::vector<Row>& pool_rows();
[[gnu::weak]] const std::vector<Row>& product_rows();
[[gnu::weak]] const std::vector<Row>& ragged_rows();
[[gnu::weak]] const std::vector<Row>& random_rows();
[[gnu::weak]] const std::vector<Row>& rearrange_rows();
[[gnu::weak]] const std::vector<Row>& reduce_rows();
[[gnu::weak]] const std::vector<Row>& resize_rows();
[[gnu::weak]] const std::vector<Row>& rnn_rows();
[[gnu::weak]] const std::vector<Row>& sampled_rows();
[[gnu::weak]] const std::vector<Row>& scan_rows();
[[gnu::weak]] const std::vector<Row>& segment_rows();
[[gnu::weak]] const std::vector<Row>& sort_rows();
[[gnu::weak]] const std::vector<Row>& tensor_rows();

/// Whether the row is one of REEL_TEST_ROW=NAME: NAME itself, or an overload NAME(…).
static bool is_named(const Row& row, const std::string& name) {
  const std::string own = row.name;
  return own == name || own.starts_with(name + "(");
}

const std::vector<Row>& op_table() {
  static const std::vector<Row> table = [] {
    std::vector<Row> all;
    for (const auto& family :
         {activation_rows, attention_rows, conv_rows,   crf_rows,     ctc_rows,       distance_rows, embedding_rows,
          index_rows,      join_rows,      linalg_rows, loss_rows,    norm_rows,      pad_rows,      pointwise_rows,
          pool_rows,       product_rows,   ragged_rows, random_rows,  rearrange_rows, reduce_rows,   resize_rows,
          rnn_rows,        sampled_rows,   scan_rows,   segment_rows, sort_rows,      tensor_rows})
      if (family) all.insert(all.end(), family().begin(), family().end());
    if (const char* const name = std::getenv("REEL_TEST_ROW")) {
      std::erase_if(all, [&](const Row& row) { return !is_named(row, name); });
      if (all.empty())
        throw std::invalid_argument("REEL_TEST_ROW=" + std::string(name) + ": the op table has no such row");
    }
    return all;
  }();
  return table;
}

Tensor make_input(const Input& input, const Shape& shape, DType dtype, int position) {
  std::mt19937 random(position + 1);
  const int64_t n = shape.numel();
  const double low = dtype == kUInt8 ? std::max(input.low, 0.) : input.low, high = input.high;
  const auto whole = [&](double end) { return std::uniform_int_distribution<int64_t>(low, end)(random); };
  std::vector<double> values(n);
  std::iota(values.begin(), values.end(), 0.);
  if (input.draw == Input::kFloats) std::shuffle(values.begin(), values.end(), random);
  for (double& v : values) switch (input.draw) {
      case Input::kFloats:  // off the middle, where the kinks are
        v = low + (high - low) * (v + 0.37 - 0.07 * position) / static_cast<double>(n);
        if (!is_floating_point(dtype)) v = std::round(v);
        break;
      case Input::kWholeNumbers: v = whole(high); break;
      case Input::kMask: v = random() % 2; break;
      case Input::kIds: v = whole(high - 1); break;
      case Input::kDistinctIds: v = low + std::fmod(v, high - low); break;
    }
  if (input.draw == Input::kMask) dtype = kBool;
  if (input.draw == Input::kIds || input.draw == Input::kDistinctIds) dtype = kInt64;
  return tensor(values, shape).to(dtype).to(test_device());
}

}  // namespace reel
