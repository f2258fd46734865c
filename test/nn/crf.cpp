#include <catch2/catch.hpp>

#include "reel/autograd.h"
#include "reel/cuda.h"
#include "reel/nn.h"
#include "reel/random.h"

namespace reel {

TEST_CASE("the CRF module is its ops with its parameters", "[nn]") {
  manual_seed(4);
  struct Tagger : nn::Module {
    nn::CRF crf{*this, "crf", 3, {.batch_first = true, .reduction = kMean}};
  } tagger;
  const nn::CRF& crf = tagger.crf;
  std::string names;
  for (const auto& [name, parameter] : tagger.named_parameters()) names += name + parameter.shape().to_string() + " ";
  CHECK(names == "crf.start_transitions[3] crf.end_transitions[3] crf.transitions[3, 3] ");
  CHECK(all(abs(crf.transitions) <= 0.1).item<bool>());
  CHECK(crf.to_string() == "CRF(num_tags=3)");

  const Tensor e = randn({2, 4, 3}), y = randint(3, {2, 4}), lengths = tensor({4, 2});
  const Tensor both = crf_log_likelihood(e.transpose(0, 1), y.transpose(0, 1), crf.transitions, crf.start_transitions,
                                         crf.end_transitions, lengths);
  CHECK(crf(e, y, lengths).item<float>() == Approx(mean(both).item<float>()));
  const std::vector<Tensor> parts{e[0], e[1].narrow(0, 0, 2)}, tags{y[0], y[1].narrow(0, 0, 2)};
  CHECK(crf(parts, tags).item<float>() == Approx(mean(both).item<float>()));
  CHECK(crf(e[0], y[0]).item<float>() == Approx(both[0].item<float>()));
  const CrfPaths best = crf.decode(e, lengths);
  CHECK(best.tags.shape() == Shape{2, 4});
  CHECK(equal(best.tags[0], crf.decode(e[0]).tags));
  CHECK(crf.marginals(e, lengths).shape() == e.shape());
}

TEST_CASE("a CRF learns a transition that emissions do not show", "[nn]") {
  manual_seed(4);
  nn::CRF crf(2);
  const Tensor e = zeros({6, 2}), y = tensor({0, 1, 0, 1, 0, 1});
  for (int step = 0; step < 50; ++step) {
    crf.zero_grad();
    (-crf(e, y)).backward();
    for (Tensor& p : crf.parameters()) no_grad([&] { p.sub_(p.grad(), 0.5); });
  }
  CHECK(equal(crf.decode(e).tags, y));
}

TEST_CASE("a CRF refuses targets that its constraints forbid", "[nn]") {
  manual_seed(2);
  const std::vector<std::string> names{"O", "B-PER", "I-PER", "B-ORG", "I-ORG"};
  nn::CRF crf(5, {.allowed = crf_bio_constraints(names)});
  const Tensor e = randn({4, 3, 5});
  const Tensor good = tensor({{1, 0, 3}, {2, 3, 4}, {0, 4, 4}, {1, 4, 0}});  // a column a sentence
  const Tensor alone = crf_log_likelihood(e, good, crf.transitions, crf.start_transitions, crf.end_transitions);
  CHECK(equal(crf(e, good), sum(alone)));
  const auto changed = [&](int64_t step, int64_t sentence, int64_t tag) {
    Tensor tags = good.clone();
    tags[step][sentence].fill_(tag);
    return tags;
  };
  if (default_device() != kCPU) {
    crf(e, changed(2, 0, 4));
    CHECK_THROWS_WITH(cuda::synchronize(), Catch::Contains("crf_log_likelihood: a tag at a position where it is not "
                                                           "allowed: index 2 is out of range [-1, 0)"));
  } else {
    CHECK_THROWS_WITH(crf(e, changed(2, 0, 4)),
                      "crf_log_likelihood: the tags of sentence 0 are not allowed: at position 2, tag 4 (I-ORG) cannot "
                      "come after tag 2 (I-PER)");
    CHECK_THROWS_WITH(crf(e, changed(0, 2, 2)),
                      "crf_log_likelihood: the tags of sentence 2 are not allowed: at position 0, tag 2 (I-PER) cannot "
                      "come first");
    const Tensor ends = tensor({true, true, true, true, false});
    CHECK_THROWS_WITH(
        crf_log_likelihood(e.select(1, 0), tensor({4, 4, 0, 4}), crf.transitions, {}, {}, {}, {.end = ends}),
        "crf_log_likelihood: the tags of sentence 0 are not allowed: at position 3, tag 4 cannot come last");
    CHECK_THROWS_WITH(crf_log_likelihood(e, good, crf.transitions, {}, {}, {}, {.start = ends.narrow(0, 0, 3)}),
                      "crf_log_likelihood: bool constraints of shape [3], not bool [5]");
    const std::vector<Tensor> emissions{e.select(1, 0), e.select(1, 1).narrow(0, 0, 2)};
    CHECK_THROWS_WITH(crf(emissions, std::vector<Tensor>{good.select(1, 0), tensor({0, 4})}),
                      "crf_log_likelihood: the tags of sentence 1 are not allowed: at position 1, tag 4 (I-ORG) cannot "
                      "come after tag 0 (O)");
  }
  // Neither what lies beyond a sentence's end nor the next sentence's begin follows anything.
  CHECK(equal(crf(e, changed(3, 0, 4), tensor({3, 4, 4})), crf(e, good, tensor({3, 4, 4}))));
  const std::vector<Tensor> two{e.select(1, 0).narrow(0, 0, 2), e.select(1, 1)};
  CHECK_NOTHROW(crf(two, std::vector<Tensor>{tensor({1, 2}), tensor({3, 4, 4, 4})}));
}

TEST_CASE("a CRF takes tags and lengths of int32", "[nn]") {
  manual_seed(2);
  nn::CRF crf(5);
  const Tensor e = randn({4, 3, 5}), tags = randint(5, {4, 3}), lengths = tensor({4, 1, 2});
  CHECK(equal(crf(e, tags.to(kInt32), lengths.to(kInt32)), crf(e, tags, lengths)));
  CHECK(equal(crf.decode(e, lengths.to(kInt32)).tags, crf.decode(e, lengths).tags));
  const std::vector<Tensor> parts{e.select(1, 0), e.select(1, 1)}, wide{tags.select(1, 0), tags.select(1, 1)};
  CHECK(equal(crf(parts, std::vector<Tensor>{wide[0].to(kInt32), wide[1].to(kInt32)}), crf(parts, wide)));
  CHECK_THROWS_WITH(crf(e, tags.to(kFloat32)),
                    "crf_log_likelihood: indices must be int64 (or int32 or uint8), got float32; to(kInt64) converts");
}

}  // namespace reel
