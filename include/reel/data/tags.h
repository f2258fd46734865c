#pragma once
#include <string>
#include <vector>

#include "reel/version.h"

#pragma GCC visibility push(default)
/// Schemes of tags that mark entities: BIO, BIOES and others.
namespace reel::data {

/// How tags mark the entities of a sentence: "O" stands outside of all, other tags are a mark and a type, "B-PER".
enum class TagScheme {
  kNone,   ///< They do not: parts of speech, for example.
  kIOB1,   ///< I; B only for the first word of an entity directly behind another of its type (CoNLL-2003's files).
  kIOB2,   ///< B for the first word of each entity, I for the others (BIO). What crf_bio_constraints expects.
  kIOBES,  ///< As kIOB2, but E for a last word and S for a single one, or L and U for these (BILOU).
};

/// The scheme of these sentences' tags: kNone if they are not all "O" or one of the marks B, I, E, S, L, U with a type,
/// kIOBES if there are other marks than B and I, kIOB2 if each I-X follows B-X or I-X, and else kIOB1. Tags that
/// contradict each other are an Error that names one of each: a few others among such marks, a B of kIOB2 beside an I
/// of kIOB1, an E beside a B that is not followed; and so are B_PER, b-per, PER-B or B where all other tags are "O".
TagScheme find_tag_scheme(const std::vector<std::vector<std::string>>& sentences);

/// The tags of a sentence in kIOB2; those of kNone as they are. As in CoNLL's evaluation, a word whose mark continues
/// an entity that is not there begins one. An Error names a tag that has none of the scheme's marks, and one of kIOB2
/// that continues nothing.
std::vector<std::string> to_iob2(std::vector<std::string> tags, TagScheme from);

}  // namespace reel::data
#pragma GCC visibility pop
