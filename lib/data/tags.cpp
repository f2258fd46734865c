#include "reel/data/tags.h"

#include <string_view>

#include "reel/error.h"

namespace reel::data {
namespace {

bool has_mark(std::string_view tag, std::string_view marks) {
  return tag == "O" || (tag.size() > 2 && tag[1] == '-' && marks.find(tag[0]) != std::string_view::npos);
}
std::string_view marks_of(TagScheme scheme) { return scheme == TagScheme::kIOBES ? "BIESLU" : "BI"; }
bool is_one_of(char mark, std::string_view marks) { return marks.find(mark) != std::string_view::npos; }

/// Does the word with this tag belong to the entity of the word before?
bool continues(std::string_view before, std::string_view tag) {
  return is_one_of(tag[0], "IEL") && is_one_of(before[0], "BI") && before.substr(1) == tag.substr(1);
}

/// Returns whether the tag may have been meant as a mark with a type or as "O": B_PER, b-per, PER-B, a mark alone, o,
/// 0.
bool resembles_mark(std::string_view tag) {
  if (tag == "o" || tag == "0") return true;
  const auto is_mark = [](char c) { return is_one_of(c, "BIESLUbieslu"); };
  const auto is_sign = [](char c) { return is_one_of(c, "-_./:|"); };
  if (tag.size() < 2) return !tag.empty() && is_mark(tag[0]);
  return (is_mark(tag[0]) && is_sign(tag[1])) || (is_mark(tag.back()) && is_sign(tag[tag.size() - 2]));
}

/// Evidence holds the place of the first tag that says one thing about the scheme, and how many tags say it.
struct Evidence {
  size_t count = 0, sentence = 0, position = 0;

  void add(size_t in_sentence, size_t at) {
    if (count++ == 0) sentence = in_sentence, position = at;
  }
};

}  // namespace

TagScheme find_tag_scheme(const std::vector<std::vector<std::string>>& sentences) {
  Evidence outside, marked, other, resembling;  // O; marks with types; neither; and what may have been meant as such
  Evidence iobes, open_end;                     // E, S, L or U; B or I where kIOBES has these
  Evidence iob1, needless_b;                    // I that begins an entity; B where kIOB1 has I
  for (size_t s = 0; s < sentences.size(); ++s) {
    const std::vector<std::string>& tags = sentences[s];
    for (size_t i = 0; i < tags.size(); ++i) {
      const std::string& tag = tags[i];
      const auto add = [&](Evidence& to, bool is_so = true) {
        if (is_so) to.add(s, i);
      };
      if (tag == "O" || !has_mark(tag, "BIESLU")) {
        add(tag == "O" ? outside : other);
        add(resembling, tag != "O" && resembles_mark(tag));
        continue;
      }
      const bool inside = i && has_mark(tags[i - 1], "BIESLU") && continues(tags[i - 1], tag);
      const bool follows = i && has_mark(tags[i - 1], "BI") && tags[i - 1].substr(1) == tag.substr(1);
      const bool goes_on = i + 1 < tags.size() && has_mark(tags[i + 1], "BIESLU") && continues(tag, tags[i + 1]);
      add(marked);
      add(iobes, is_one_of(tag[0], "ESLU"));
      add(open_end, is_one_of(tag[0], "BI") && !goes_on);
      add(iob1, tag[0] == 'I' && !inside);
      add(needless_b, tag[0] == 'B' && !follows);
    }
  }
  const auto text = [&](const Evidence& of) {
    return "sentences[" + std::to_string(of.sentence) + "][" + std::to_string(of.position) + "] is '" +
           sentences[of.sentence][of.position].substr(0, 100) + "'";
  };
  constexpr const char* kChoose = "; correct it, or choose a scheme without find_tag_scheme";
  const bool all_resemble = other.count == resembling.count && (marked.count || outside.count);
  REEL_CHECK(!other.count || !(all_resemble || (marked.count && marked.count + outside.count >= other.count)),
             "find_tag_scheme: ", text(other), ", which is neither O nor a mark with a type, such as B-PER, ",
             marked.count ? "but " + text(marked) : "but resembles that", kChoose);
  if (other.count) return TagScheme::kNone;
  REEL_CHECK(!iobes.count || !open_end.count, "find_tag_scheme: ", text(iobes), ", which is of IOBES, but ",
             text(open_end), ", where that has an E, S, L or U", kChoose);
  if (iobes.count) return TagScheme::kIOBES;
  REEL_CHECK(!iob1.count || !needless_b.count, "find_tag_scheme: ", text(iob1),
             " and begins an entity, which is of IOB1, but ", text(needless_b), ", where that has an I", kChoose);
  return iob1.count ? TagScheme::kIOB1 : TagScheme::kIOB2;
}

std::vector<std::string> to_iob2(std::vector<std::string> tags, TagScheme from) {
  if (from == TagScheme::kNone) return tags;
  std::string before = "O";  // in the old scheme
  for (size_t i = 0; i < tags.size(); ++i) {
    REEL_CHECK(has_mark(tags[i], marks_of(from)), "to_iob2: tag ", i, " is '", tags[i], "', not O or one of ",
               marks_of(from), " with a type, such as B-X");
    std::string old = tags[i];
    if (old != "O") {
      const bool inside = continues(before, old);
      REEL_CHECK(inside || old[0] != 'I' || from != TagScheme::kIOB2, "to_iob2: tag ", i, " is ", old, " behind ",
                 before, ", where IOB2 has B", old.substr(1));
      tags[i][0] = inside ? 'I' : 'B';
    }
    before = std::move(old);
  }
  return tags;
}

}  // namespace reel::data
