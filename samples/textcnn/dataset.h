#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "reel/reel.h"

/// A sentence: its words' numbers, and whether it is positive.
struct Review {
  std::vector<int64_t> words;
  int64_t positive;
};

struct Reviews {
  reel::data::Vocabulary words;
  std::vector<Review> items;
};

/// Reads two files of a folder, a sentence a line with words between spaces: those whose names end in ".pos" and in
/// ".neg" (Pang & Lee 2005: rt-polarity.pos and rt-polarity.neg), plain or gzip.
Reviews read_reviews(const std::string& folder);

/// Made-up sentences: words of praise and of blame among others; "not" turns the next word around.
Reviews generate_reviews(int64_t count, uint64_t seed);
