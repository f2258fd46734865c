#pragma once
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "reel/reel.h"

/// A text: the numbers of its words, line by line. Rare words have been taken out.
struct Corpus {
  reel::data::Vocabulary words;
  std::vector<int32_t> ids;
  std::vector<int64_t> begins{0};  ///< Line i is ids[begins[i]] … ids[begins[i + 1] - 1].

  int64_t lines() const { return static_cast<int64_t>(begins.size()) - 1; }
  int64_t size() const { return static_cast<int64_t>(ids.size()); }
};

/// Reads a text file, or all of a folder whose names hold ".txt", plain or gzip; words are between spaces.
Corpus read_corpus(const std::string& path, int64_t min_count);

/// Sentences of a made-up language. Words are made of a topic and a role, "kuto" and "kumi", "pato" and "pami", and
/// stand among other words of their topic and of their role, so that kuto is to kumi what pato is to pami.
Corpus generate_corpus(int64_t sentences, uint64_t seed);
/// Questions about that, in the form of questions-words.txt: "kuto kumi pato pami".
std::vector<std::string> generated_questions();

/// Takes frequent words out at random (Mikolov et al. 2013, section 2.3, in the form of their program).
class Subsampling {
 public:
  /// threshold 0: takes out nothing.
  Subsampling(const Corpus& corpus, double threshold);
  /// Replaces `kept` by what is left of a line.
  void sample(std::span<const int32_t> line, std::minstd_rand& random, std::vector<int64_t>& kept) const;

 private:
  std::vector<uint32_t> keep_;  ///< Of each word: it stays if a random number is below.
};
