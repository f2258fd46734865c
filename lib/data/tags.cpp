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

}  // namespace

TagScheme find_tag_scheme(const std::vector<std::vector<std::string>>& sentences) {
  TagScheme scheme = TagScheme::kIOB2;
  for (const std::vector<std::string>& tags : sentences)
    for (size_t i = 0; i < tags.size(); ++i) {
      if (!has_mark(tags[i], "BIESLU")) return TagScheme::kNone;
      if (tags[i] == "O" || scheme == TagScheme::kIOBES) continue;
      if (is_one_of(tags[i][0], "ESLU"))
        scheme = TagScheme::kIOBES;
      else if (tags[i][0] == 'I' && !(i && continues(tags[i - 1], tags[i])))
        scheme = TagScheme::kIOB1;
    }
  return scheme;
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
