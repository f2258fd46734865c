// Feeds the fuzzers' seeds, whole and damaged, to the readers; without a fuzzer.
#include <random>

#include "test/fuzz/targets.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

TEST_CASE("readers take their seeds whole and refuse them damaged") {
  for (const FuzzTarget& target : fuzz_targets()) {
    INFO(target.name);
    int read = 0;
    std::mt19937 random(1);
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path("test/fuzz/seeds") / target.name)) {
      const std::string seed = contents(entry.path());
      std::vector<uint8_t> bytes(seed.begin(), seed.end());
      read += feed(target, bytes);
      for (size_t length = 0; length < bytes.size(); length += 1 + bytes.size() / 50)
        CHECK_NOTHROW(feed(target, std::span(bytes).first(length)));
      for (int i = 0; i < 100; ++i) {
        std::vector<uint8_t> changed = bytes;
        for (int j = 0; j < 3; ++j) changed[random() % changed.size()] = static_cast<uint8_t>(random());
        CHECK_NOTHROW(feed(target, changed));
      }
    }
    CHECK(read > 0);
  }
}
