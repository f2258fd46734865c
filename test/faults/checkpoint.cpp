// Saves a checkpoint that holds a number, or prints the number that the newest readable one holds: checkpoint FILE
// [NUMBER]. Exit status 3 for a reel::Error.
#include <cstdio>
#include <cstdlib>

#include "reel/reel.h"

using namespace reel;

int main(int argc, char** argv) try {
  if (argc < 2) return 2;
  nn::Linear net(64, 64);
  optim::Adam adam(net.parameters(), {});
  io::Checkpoint checkpoint;
  checkpoint.add("model", net).add("optimizer", adam);
  if (argc > 2) {
    no_grad([&] { net.weight.fill_(std::atof(argv[2])); });
    checkpoint.save(argv[1], {}, {.keep = 2});
    return 0;
  }
  const auto found = checkpoint.load_newest(argv[1]);
  std::printf("%.0f of %s, %zu damaged\n", net.weight.select(0, 0)[0].item<double>(),
              found ? found->path.filename().c_str() : "nothing", found ? found->damaged.size() : 0);
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 3;
}
