// DistributedDataParallel on ranks that are threads.
#include "reel/distributed/ddp.h"

#include <catch2/catch.hpp>

#include "reel/reel.h"
#include "test/distributed/models.h"

using namespace reel;
using namespace reel::distributed;
using namespace reel::distributed::test;

namespace {

template <class Model>
void check_like_alone() {
  const Tensors reference = alone<Model, optim::SGD>(2);
  for (const Tensors& weights : on_ranks(2, [](int rank) { return on_rank<Model, optim::SGD>(rank, 2); }))
    CHECK(same(weights, reference));
}

}  // namespace

TEST_CASE("two ranks train as one process does, to the bit", "[ddp]") {
  check_like_alone<Mlp>();
  check_like_alone<Recurrent>();
  check_like_alone<Tree>();
  const Tensors mlp = alone<Mlp, optim::Adam>(2), recurrent = alone<Recurrent, optim::Adam>(2);
  for (const Tensors& w : on_ranks(2, [](int rank) { return on_rank<Mlp, optim::Adam>(rank, 2); })) CHECK(same(w, mlp));
  for (const Tensors& w : on_ranks(2, [](int rank) { return on_rank<Recurrent, optim::Adam>(rank, 2); }))
    CHECK(same(w, recurrent));
}

TEST_CASE("the limits of buckets change no bit with two ranks", "[ddp]") {
  const Tensors reference = alone<Recurrent, optim::Adam>(2);
  for (const size_t bytes : {size_t{1}, size_t{1} << 10, size_t{4} << 20, SIZE_MAX / 2}) {
    CAPTURE(bytes);
    const DistributedDataParallelOptions options{.bucket_bytes = bytes,
                                                 .first_bucket_bytes = std::min(bytes, size_t{1} << 20)};
    for (const Tensors& w : on_ranks(2, [&](int rank) { return on_rank<Recurrent, optim::Adam>(rank, 2, options); }))
      CHECK(same(w, reference));
  }
}

TEST_CASE("ranks have the same bits after each step", "[ddp]") {
  for (const int world : {3, 4}) {
    const auto weights = on_ranks(world, [&](int rank) { return on_rank<Tree, optim::SGD>(rank, world); });
    for (const Tensors& w : weights) CHECK(same(w, weights[0]));
    const Tensors reference = alone<Tree, optim::SGD>(world);
    for (size_t i = 0; i < reference.size(); ++i) CHECK(allclose(weights[0][i], reference[i], 1e-4, 1e-6));
  }
}
