#pragma once
#include <string>
#include <string_view>
#include <vector>

/// A question as a program: modules that are applied to what other modules have found in a scene. Written in brackets,
/// "how many red things, or things left of a square, are there?" is
///
///   (count (or (find red) (left (find square))))
///
/// The outermost module answers, the others say where in the scene something is:
///
///   (exists X)         is there an X?                (find WORD)   the things that the word is true of
///   (count X)          how many X are there?         (WORD X)      the things in the relation WORD to an X
///   (WORD X)           the WORD of X, its color, say (and X X), (or X X)
struct Program {
  enum Kind { kFind, kRelocate, kAnd, kOr, kExists, kCount, kDescribe };
  Kind kind;
  std::string word;  ///< Of kFind, kRelocate and kDescribe.
  std::vector<Program> parts;

  /// The longest chain of modules that say where: 1 for (count (find red)).
  int depth() const;
  /// The modules' names, each before its parts: count or red left square.
  std::vector<std::string> names() const;
  std::string to_string() const;  ///< In brackets.
};

/// Reads a question. The Error of a wrong one begins with `where`.
Program parse_program(std::string_view text, const std::string& where);
