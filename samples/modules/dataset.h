#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "program.h"
#include "reel/data.h"
#include "reel/io.h"
#include "reel/tensor.h"

/// A question about a scene, and its answer.
struct Question {
  int64_t scene;
  std::string answer;
  Program program;
  // What encode() fills in.
  reel::Tensor words = {};   ///< The program's names as numbers, int64 [n], for a net that reads them as a sentence.
  reel::Tensor target = {};  ///< The answer's number, int64 [1].
};

struct Part {
  reel::Tensor scenes;  ///< uint8 [n, channels, height, width]
  std::vector<Question> questions;
};
struct Corpus {
  Part train, dev, test;
};

///@{
/// Of each part (train, dev and test) two files: PART.npy has the scenes, a NumPy array uint8 [n, channels, height,
/// width], and PART.txt the questions, a line each with tabs between
///
///   SCENE   the number of the scene in the array, from 0
///   ANSWER  any word
///   PROGRAM the question; see program.h
///
/// Programs use the words of those in train.txt. All scenes have one size.
Corpus read_corpus(const std::filesystem::path& folder);
void write_corpus(const Corpus& corpus, const std::filesystem::path& folder);
///@}

/// What modules there are, and what they may answer.
struct Words {
  reel::data::Vocabulary find, relocate, describe, answers;
  reel::data::Vocabulary all;  ///< The modules' names, with and, or, exists and count.

  /// Of these questions.
  explicit Words(const std::vector<Question>& questions);
  /// As a model's file has them.
  explicit Words(const reel::io::Metadata& metadata);
  reel::io::Metadata metadata() const;

  /// An Error names the question of `part` that has a word or an answer which is not among these.
  void encode(std::vector<Question>& questions, const std::string& part) const;

 private:
  void add(const Program& program);
  void check(const Program& program, const std::string& where) const;
};
