#include <catch2/catch.hpp>

#include "reel/autograd.h"
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

}  // namespace reel
