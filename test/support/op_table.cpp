#include "test/support/op_table.h"

// THE table of ops, put together from the families' (test/ops). The tests that run over it are in test/ops/check.cpp.
namespace reel {

const std::vector<Row>& activation_rows();
const std::vector<Row>& attention_rows();
const std::vector<Row>& conv_rows();
const std::vector<Row>& crf_rows();
const std::vector<Row>& ctc_rows();
const std::vector<Row>& distance_rows();
const std::vector<Row>& embedding_rows();
const std::vector<Row>& index_rows();
const std::vector<Row>& join_rows();
const std::vector<Row>& linalg_rows();
const std::vector<Row>& loss_rows();
const std::vector<Row>& norm_rows();
const std::vector<Row>& pad_rows();
const std::vector<Row>& pointwise_rows();
const std::vector<Row>& pool_rows();
const std::vector<Row>& product_rows();
const std::vector<Row>& random_rows();
const std::vector<Row>& reduce_rows();
const std::vector<Row>& resize_rows();
const std::vector<Row>& rnn_rows();
const std::vector<Row>& sampled_rows();
const std::vector<Row>& scan_rows();
const std::vector<Row>& segment_rows();
const std::vector<Row>& sort_rows();
const std::vector<Row>& tensor_rows();

const std::vector<Row>& op_table() {
  static const std::vector<Row> table = [] {
    std::vector<Row> all;
    for (const auto& family :
         {activation_rows, attention_rows, conv_rows,   crf_rows,    ctc_rows,    distance_rows, embedding_rows,
          index_rows,      join_rows,      linalg_rows, loss_rows,   norm_rows,   pad_rows,      pointwise_rows,
          pool_rows,       product_rows,   random_rows, reduce_rows, resize_rows, rnn_rows,      sampled_rows,
          scan_rows,       segment_rows,   sort_rows,   tensor_rows})
      all.insert(all.end(), family().begin(), family().end());
    return all;
  }();
  return table;
}

}  // namespace reel
