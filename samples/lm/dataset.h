#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "reel/reel.h"

/// What tokens of a text are.
struct TokenOptions {
  bool words = false;     ///< Else letters: the characters of UTF-8.
  int64_t min_count = 1;  ///< Rarer tokens become "<unk>".
};

/// A text as numbers. The end of a line is a token, too: "\n".
struct Text {
  reel::data::Vocabulary tokens;
  reel::Tensor ids;  ///< [n], int32.
  /// Bits a token of the source of a made-up text, which no model can beat in the long run.
  std::optional<double> entropy = {};
};

/// Reads a text file, plain or gzip. Tokens are those of `known`, if given, and otherwise all of the text.
Text read_text(const std::string& path, const TokenOptions& options,
               const std::optional<reel::data::Vocabulary>& known);

/// Sentences of a made-up language, whose verbs agree with their subjects, however far away these are.
Text generate_text(int64_t sentences, uint64_t seed, const TokenOptions& options,
                   const std::optional<reel::data::Vocabulary>& known);
