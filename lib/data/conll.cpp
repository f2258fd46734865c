#include "reel/data/conll.h"

#include <array>

#include "lib/data/parse.h"
#include "lib/data/utf8.h"
#include "lib/io/source.h"
#include "reel/data/text.h"

// Readers of CoNLL files: columns of words, a sentence to a paragraph (CoNLL-2003 and the like), and CoNLL-U, the
// format of Universal Dependencies (https://universaldependencies.org/format.html). Input is checked against the format
// line by line, so that a tree built from it has no head out of range; errors name the line.
namespace reel::data {

// ---- columns --------------------------------------------------------------------------------------------------------

namespace {

std::string utf8_of_latin1(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x80)
      result += c;
    else
      (result += static_cast<char>(0xc0 | code >> 6)) += static_cast<char>(0x80 | (code & 0x3f));
  }
  return result;
}

void check_utf8(const io::Source& source, std::string_view line) {
  if (const size_t bad = first_not_utf8(line); bad < line.size())
    source.fail_line("byte ", bad + 1, " of the line, ", hex(line[bad]), ", is not UTF-8; is the file Latin-1?");
}

}  // namespace

std::vector<ConllSentence> read_conll(const std::filesystem::path& path, const ConllOptions& options) {
  REEL_CHECK(options.columns >= 0, "read_conll: ", options.columns, " columns");
  io::Source source(path);
  std::vector<ConllSentence> sentences;
  auto columns = static_cast<size_t>(options.columns);
  int64_t first_line = 0;  // which says how many columns there are
  bool inside = false, hashes = false;
  size_t with_hash = 0;  // sentences that begin with a line of "#"
  std::string line;
  while (source.read_line(line)) {
    source.check_row(line);
    if (!options.comment.empty() && line.starts_with(options.comment)) continue;
    if (options.latin1)
      line = utf8_of_latin1(line);
    else
      check_utf8(source, line);
    hashes |= line.starts_with('#');
    std::vector<std::string> fields = split_words(line, options.separators);
    if (fields.empty() || fields[0] == "-DOCSTART-") {
      inside = false;
      continue;
    }
    if (columns == 0) columns = fields.size(), first_line = source.line_number();
    if (fields.size() != columns)
      source.fail_line(fields.size(), " columns, expected ", columns,
                       first_line ? " as in line " + std::to_string(first_line) : "",
                       hashes ? "; are there comments, which options.comment would skip?" : "");
    if (!inside) {
      sentences.emplace_back().columns.resize(columns);
      with_hash += fields[0] == "#";
    }
    inside = true;
    for (size_t i = 0; i < columns; ++i) sentences.back().columns[i].push_back(std::move(fields[i]));
  }
  // A token "#" is a rare one; comments of as many columns as the tokens would become tokens and tags.
  REEL_CHECK(with_hash == 0 || with_hash < sentences.size() || !options.comment.empty(), source.name(),
             ": each sentence begins with a line of '#': are these comments, which options.comment would skip?");
  return sentences;
}

// ---- CoNLL-U --------------------------------------------------------------------------------------------------------

namespace {

using Features = std::vector<std::pair<std::string, std::string>>;

std::string to_string(const Features& feats) {
  std::string text;
  for (const auto& [name, value] : feats) text += (text.empty() ? "" : "|") + name + "=" + value;
  return text.empty() ? "_" : text;
}

class ConlluReader {
 public:
  explicit ConlluReader(const std::filesystem::path& path) : source_(path) {}

  std::vector<ConlluSentence> read() {
    std::string line;
    while (source_.read_line(line)) {
      source_.check_row(line);
      check_utf8(source_, line);
      if (line.empty())
        finish();
      else if (line[0] == '#')
        comment(line);
      else
        add(line);
    }
    finish();
    return std::move(sentences_);
  }

 private:
  using Columns = std::array<std::string_view, 10>;

  template <class... Parts>
  void check(bool good, const Parts&... parts) const {
    if (!good) source_.fail_line(parts...);
  }

  void comment(const std::string& line) {
    check(sentence_.words.empty() && sentence_.ranges.empty() && sentence_.empties.empty(),
          "a comment inside a sentence");
    sentence_.comments.push_back(line.substr(1));
  }

  void add(std::string_view line) {
    const Columns columns = split(line);
    const std::string_view id = columns[0];
    if (const size_t dash = id.find('-'); dash != std::string_view::npos)
      range(number(id.substr(0, dash), "ID"), number(id.substr(dash + 1), "ID"), columns);
    else if (const size_t dot = id.find('.'); dot != std::string_view::npos)
      empty(number(id.substr(0, dot), "ID"), number(id.substr(dot + 1), "ID"), columns);
    else
      word(number(id, "ID"), columns);
  }

  void word(int64_t id, const Columns& columns) {
    check(id == sentence_.size() + 1, "ID ", id, " where ", sentence_.size() + 1, " was expected");
    sentence_.words.push_back(parse(columns));
    lines_.push_back(source_.line_number());
  }

  void range(int64_t first, int64_t last, const Columns& columns) {
    check(first == sentence_.size() + 1 && last >= first, "the range ", first, "-", last, " after word ",
          sentence_.size());
    check(sentence_.ranges.empty() || sentence_.ranges.back().last < first, "the range ", first, "-", last,
          " overlaps another");
    sentence_.ranges.push_back({first, last, std::string(columns[1]), std::string(columns[9]), features(columns[5])});
    for (const int i : {2, 3, 4, 6, 7, 8}) check(columns[i] == "_", "a range has more than a FORM, FEATS and MISC");
  }

  void empty(int64_t after, int64_t which, const Columns& columns) {
    const bool another = !sentence_.empties.empty() && sentence_.empties.back().after == after;
    check(after == sentence_.size() && which == (another ? sentence_.empties.back().number + 1 : 1), "the empty node ",
          after, ".", which, " after word ", sentence_.size());
    sentence_.empties.push_back({after, which, parse(columns)});
  }

  void finish() {
    if (sentence_.words.empty()) {
      check(sentence_.comments.empty() && sentence_.empties.empty() && sentence_.ranges.empty(),
            "a sentence without words");
      return;
    }
    if (!sentence_.ranges.empty())
      check(sentence_.ranges.back().last <= sentence_.size(), "the range ", sentence_.ranges.back().first, "-",
            sentence_.ranges.back().last, " in a sentence of ", sentence_.size(), " words");
    for (int64_t i = 0; i < sentence_.size(); ++i)
      if (sentence_.words[i].head > sentence_.size())
        reel::detail::fail(source_.name(), ":", lines_[i], ": HEAD ", sentence_.words[i].head, " in a sentence of ",
                           sentence_.size(), " words");
    sentences_.push_back(std::move(sentence_));
    sentence_ = {};
    lines_.clear();
  }

  Columns split(std::string_view line) const {
    Columns columns;
    for (size_t i = 0; i < columns.size(); ++i) {
      const size_t tab = line.find('\t');
      check((tab == std::string_view::npos) == (i + 1 == columns.size()), "expected 10 columns separated by tabs");
      columns[i] = line.substr(0, tab);
      check(!columns[i].empty(), "column ", i + 1, " is empty");
      if (tab != std::string_view::npos) line.remove_prefix(tab + 1);
    }
    return columns;
  }

  int64_t number(std::string_view text, const char* what) const {
    int64_t value = 0;
    check(!text.starts_with('+') && parse_number(text, value) && value >= 0 && (text[0] != '0' || text.size() == 1),
          what, " '", text.substr(0, 100), "' is not a number");
    return value;
  }

  Features features(std::string_view text) const {
    Features feats;
    if (text == "_") return feats;
    while (true) {
      const size_t bar = text.find('|');
      const std::string_view one = text.substr(0, bar);
      const size_t equal = one.find('=');
      check(equal != std::string_view::npos && equal > 0 && equal + 1 < one.size(), "FEATS '", one.substr(0, 100),
            "' is not Name=Value");
      feats.emplace_back(one.substr(0, equal), one.substr(equal + 1));
      if (bar == std::string_view::npos) return feats;
      text.remove_prefix(bar + 1);
    }
  }

  ConlluWord parse(const Columns& c) const {
    const auto text = [&](int i) { return std::string(c[i]); };
    return {.form = text(1),
            .lemma = text(2),
            .upos = text(3),
            .xpos = text(4),
            .deprel = text(7),
            .deps = text(8),
            .misc = text(9),
            .feats = features(c[5]),
            .head = c[6] == "_" ? -1 : number(c[6], "HEAD")};
  }

  io::Source source_;
  std::vector<ConlluSentence> sentences_;
  ConlluSentence sentence_;
  std::vector<int64_t> lines_;  // line numbers of its words
};

}  // namespace

std::vector<ConlluSentence> read_conllu(const std::filesystem::path& path) { return ConlluReader(path).read(); }

std::optional<std::string> ConlluSentence::metadata(std::string_view key) const {
  for (const std::string& comment : comments)
    if (const size_t equal = comment.find('='); equal != std::string::npos)
      if (trim_spaces(std::string_view(comment).substr(0, equal)) == key)
        return std::string(trim_spaces(std::string_view(comment).substr(equal + 1)));
  return {};
}

std::string ConlluSentence::to_string() const {
  std::string text;
  const auto line = [&](std::initializer_list<std::string_view> columns) {
    for (const std::string_view column : columns) (text += column) += '\t';
    text.back() = '\n';
  };
  const auto write = [&](const std::string& id, const ConlluWord& word) {
    line({id, word.form, word.lemma, word.upos, word.xpos, data::to_string(word.feats),
          word.head < 0 ? "_" : std::to_string(word.head), word.deprel, word.deps, word.misc});
  };
  for (const std::string& comment : comments) text += "#" + comment + "\n";
  auto range = ranges.begin();
  auto empty = empties.begin();
  for (int64_t i = 0; i <= size(); ++i) {
    if (i > 0) write(std::to_string(i), words[i - 1]);
    for (; empty != empties.end() && empty->after == i; ++empty)
      write(std::to_string(i) + "." + std::to_string(empty->number), empty->word);
    for (; range != ranges.end() && range->first == i + 1; ++range)
      line({std::to_string(range->first) + "-" + std::to_string(range->last), range->form, "_", "_", "_",
            data::to_string(range->feats), "_", "_", "_", range->misc});
  }
  return text + "\n";
}

}  // namespace reel::data
