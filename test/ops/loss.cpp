#include "test/op_rows.h"

namespace reel {

// clang-format off
const std::vector<Row>& loss_rows() {
  static const std::vector<Row> rows{

// ---- softmax and losses

{"softmax", [](In x) { return softmax(x[0], -1); }, [](Ref x) { return along(x[0], 2, ref::softmax); }, {{kCube}}},
{"softmax(dim)", [](In x) { return softmax(x[0], 1); }, [](Ref x) { return along(x[0], 1, ref::softmax); }, {{kCube}}},
{"softmax(long)", [](In x) { return softmax(x[0], 1); }, [](Ref x) { return along(x[0], 1, ref::softmax); },
 {{{2, 21}}}},
{"log_softmax", [](In x) { return log_softmax(x[0], 1); }, [](Ref x) { return along(x[0], 1, ref::log_softmax); },
 {{kMatrix}}},
{"log_softmax(dim)", [](In x) { return log_softmax(x[0], 0); }, [](Ref x) { return along(x[0], 0, ref::log_softmax); },
 {{kCube}}},
{"nll_loss", [](In x) { return nll_loss(x[0], x[1]); },
 [](Ref x) { return fold(ref::negative_log_likelihood(x[0], x[1]), {}, ref::average); }, {{{5, 3}}, ids({5}, 3)}},
{"nll_loss(sum)", [](In x) { return nll_loss(x[0], x[1], kSum); },
 [](Ref x) { return fold(ref::negative_log_likelihood(x[0], x[1]), {}, ref::total); }, {{{5, 3}}, ids({5}, 3)}},
{"nll_loss(none)", [](In x) { return nll_loss(x[0], x[1], kNoReduction); },
 [](Ref x) { return ref::negative_log_likelihood(x[0], x[1]); }, {{{5, 3}}, ids({5}, 3)}},
{"nll_loss(one)", [](In x) { return nll_loss(x[0], x[1]); },
 [](Ref x) { return ref::negative_log_likelihood(x[0], x[1]); }, {{{4}}, ids({}, 4)}},
{"cross_entropy", [](In x) { return cross_entropy(x[0], x[1]); },
 [](Ref x) { return fold(ref::negative_log_likelihood(along(x[0], 1, ref::log_softmax), x[1]), {}, ref::average); },
 {{{5, 3}}, ids({5}, 3)}},
{"cross_entropy(sum)", [](In x) { return cross_entropy(x[0], x[1], kSum); },
 [](Ref x) { return fold(ref::negative_log_likelihood(along(x[0], 1, ref::log_softmax), x[1]), {}, ref::total); },
 {{{3, 19}}, ids({3}, 19)}},
{"cross_entropy(none)", [](In x) { return cross_entropy(x[0], x[1], kNoReduction); },
 [](Ref x) { return ref::negative_log_likelihood(along(x[0], 1, ref::log_softmax), x[1]); }, {{{5, 3}}, ids({5}, 3)}},
{"cross_entropy(one)", [](In x) { return cross_entropy(x[0], x[1]); },
 [](Ref x) { return ref::negative_log_likelihood(along(x[0], 0, ref::log_softmax), x[1]); }, {{{4}}, ids({}, 4)}},
{"mse_loss", [](In x) { return mse_loss(x[0], x[1]); },
 [](Ref x) { return fold(ref::zip(x[0], x[1], ref::squared_error), {}, ref::average); }, {{kMatrix}, {kMatrix}}},
{"mse_loss(none)", [](In x) { return mse_loss(x[0], x[1], kNoReduction); },
 [](Ref x) { return ref::zip(x[0], x[1], ref::squared_error); }, {{kMatrix}, {kMatrix}}},
{"binary_cross_entropy", [](In x) { return binary_cross_entropy(x[0], x[1]); },
 [](Ref x) { return fold(ref::zip(x[0], x[1], ref::cross_entropy), {}, ref::average); },
 {{kMatrix, 0.1, 0.9}, {kMatrix, 0, 1}}},
{"binary_cross_entropy(none)", [](In x) { return binary_cross_entropy(x[0], x[1], kNoReduction); },
 [](Ref x) { return ref::zip(x[0], x[1], ref::cross_entropy); }, {{kMatrix, 0.1, 0.9}, {kMatrix, 0, 1}}},
{"binary_cross_entropy_with_logits", [](In x) { return binary_cross_entropy_with_logits(x[0], x[1], kSum); },
 [](Ref x) { return fold(ref::zip(x[0], x[1], ref::cross_entropy_of_logit), {}, ref::total); },
 {{kMatrix, -4, 4}, {kMatrix, 0, 1}}},

};
  return rows;
}
// clang-format on

}  // namespace reel
