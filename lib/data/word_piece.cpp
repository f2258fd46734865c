#include "reel/data/word_piece.h"

#include <algorithm>
#include <array>

#include "lib/data/utf8.h"
#include "lib/io/json.h"
#include "reel/data/text.h"

// BERT's tokenizer, character by character: what the transformers package does to a whole text, one step after the
// other (clean, set Chinese apart, decompose, drop accents, lower case, split), is done to each character in that
// order, since none of the steps looks at a second one.
namespace reel::data {
namespace {

bool is_chinese(int32_t c) {
  constexpr std::array<std::array<int32_t, 2>, 8> kBlocks{{{0x4e00, 0x9fff},
                                                           {0x3400, 0x4dbf},
                                                           {0x20000, 0x2a6df},
                                                           {0x2a700, 0x2b73f},
                                                           {0x2b740, 0x2b81f},
                                                           {0x2b820, 0x2ceaf},
                                                           {0xf900, 0xfaff},
                                                           {0x2f800, 0x2fa1f}}};
  return c >= 0x3400 &&
         std::any_of(kBlocks.begin(), kBlocks.end(), [&](const auto& b) { return c >= b[0] && c <= b[1]; });
}

bool is_space(int32_t c, utf8proc_category_t category) {
  return c == '\t' || c == '\n' || c == '\r' ||
         (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);  // separators
}
/// To be dropped: control and format characters, those of private use and those that are none, U+FFFD.
bool is_noise(int32_t c, utf8proc_category_t category) {
  return c == 0xfffd || category == UTF8PROC_CATEGORY_CN || category >= UTF8PROC_CATEGORY_CC;
}
/// Also ASCII's signs that Unicode counts among the symbols: $ + < = > ^ ` | ~
bool is_punctuation(int32_t c, utf8proc_category_t category) {
  if (c < 0x80) return c > ' ' && c < 0x7f && !((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9');
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

/// Splits text into words, and calls give(word) for each.
template <class Give>
class Splitter {
 public:
  Splitter(const WordPieceOptions& options, const Give& give)
      : lower_(options.lower_case),
        strip_(options.strip_accents.value_or(options.lower_case)),
        chinese_(options.split_chinese),
        give_(give) {}

  /// text is UTF-8.
  void split(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const auto [c, bytes] = first_character(text.substr(at));
      at += bytes;
      const utf8proc_category_t category = utf8proc_category(c);
      if (is_space(c, category)) {
        finish();
      } else if (!is_noise(c, category)) {
        const bool alone = chinese_ && is_chinese(c);
        if (alone) finish();
        strip_&& c >= 0x80 ? decompose(c) : put(c);
        if (alone) finish();
      }
    }
    finish();
  }

 private:
  void decompose(int32_t c) {
    std::array<utf8proc_int32_t, 32> parts{};
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(c, parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i)
      if (utf8proc_category(parts[static_cast<size_t>(i)]) != UTF8PROC_CATEGORY_MN) put(parts[static_cast<size_t>(i)]);
  }
  void put(int32_t c) {
    const bool mark = is_punctuation(c, utf8proc_category(c));
    if (mark) finish();
    append_character(word_, lower_ ? utf8proc_tolower(c) : c);
    if (lower_ && c == 0x130)
      append_character(word_, 0x307);  // the one capital that becomes two characters, i and a dot
    if (mark) finish();
  }
  void finish() {
    if (!word_.empty()) give_(word_), word_.clear();
  }

  const bool lower_, strip_, chinese_;
  const Give& give_;
  std::string word_;
};

bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

}  // namespace

// ---- settings -------------------------------------------------------------------------------------------------------

WordPieceOptions WordPieceOptions::with_settings_of(const std::filesystem::path& path) const {
  const io::JsonObject json(path);
  // Others that have a vocab.txt, too, split words in other ways.
  constexpr std::string_view kSameTokenizers[] = {"BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer"};
  const std::string name = json.value("tokenizer_class", std::string("BertTokenizer"));
  const bool known = std::any_of(std::begin(kSameTokenizers), std::end(kSameTokenizers), [&](std::string_view same) {
    return name == same || name == std::string(same) + "Fast";
  });
  REEL_CHECK(known, path.string(), ": 'tokenizer_class' is ", name, ", not BertTokenizer");
  REEL_CHECK(json.value("do_basic_tokenize", true), path.string(), ": words that are not split at punctuation");
  WordPieceOptions o = *this;
  o.lower_case = json.value("do_lower_case", o.lower_case);
  o.split_chinese = json.value("tokenize_chinese_chars", o.split_chinese);
  if (json.has("strip_accents")) o.strip_accents = json.value("strip_accents", false);
  for (const auto& [key, token] : {std::pair{"unk_token", &o.unknown},
                                   {"cls_token", &o.cls},
                                   {"sep_token", &o.sep},
                                   {"pad_token", &o.pad},
                                   {"mask_token", &o.mask}})
    *token = json.text(key, "content", *token);
  return o;
}

// ---- the vocabulary -------------------------------------------------------------------------------------------------

WordPiece::WordPiece(Vocabulary vocabulary, WordPieceOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  const auto special = [&](const std::string& token) {
    const auto id = vocabulary_.find(token);
    REEL_CHECK(id && !token.empty(), "WordPiece: the special token '", token, "' is not in the vocabulary of ",
               vocabulary_.size(), " pieces");
    return *id;
  };
  unknown_ = special(options_.unknown), cls_ = special(options_.cls);
  sep_ = special(options_.sep), pad_ = special(options_.pad);
  if (!options_.mask.empty()) mask_ = vocabulary_.find(options_.mask);
  REEL_CHECK(options_.max_word_chars > 0, "WordPiece: words of at most ", options_.max_word_chars, " characters");
  for (const std::string& piece : vocabulary_.tokens()) longest_ = std::max(longest_, piece.size());
}

WordPiece WordPiece::load(const std::filesystem::path& path, WordPieceOptions options) {
  const bool folder = std::filesystem::is_directory(path);
  if (const auto settings = path / "tokenizer_config.json"; folder && std::filesystem::exists(settings))
    options = options.with_settings_of(settings);
  const auto file = folder ? path / "vocab.txt" : path;
  Vocabulary pieces;
  int64_t line_number = 0;
  for_each_line(file, [&](std::string_view line) {
    ++line_number;
    REEL_CHECK(!pieces.contains(line), file.string(), ":", line_number, ": '", line, "' appears twice");
    pieces.add(line);
  });
  return WordPiece(std::move(pieces), std::move(options));
}

// ---- text to pieces -------------------------------------------------------------------------------------------------

void WordPiece::add_word(std::string_view word, std::vector<int64_t>& ids) const {
  const auto chars = std::count_if(word.begin(), word.end(), [](char c) { return !continues(c); });
  const size_t before = ids.size();
  std::string piece;
  for (size_t begin = 0; begin < word.size();) {
    std::optional<int64_t> id;
    size_t end = std::min(word.size(), begin + longest_);
    for (; end > begin && !id && chars <= options_.max_word_chars; --end) {
      if (end < word.size() && continues(word[end])) continue;
      piece.assign(begin > 0 ? "##" : "").append(word.substr(begin, end - begin));
      if ((id = vocabulary_.find(piece))) break;
    }
    if (!id) {
      ids.resize(before), ids.push_back(unknown_);
      return;
    }
    ids.push_back(*id);
    begin = end;
  }
}

void WordPiece::add_plain(std::string_view text, std::vector<int64_t>& ids) const {
  const auto give = [&](std::string_view word) { add_word(word, ids); };
  Splitter(options_, give).split(text);
}

std::vector<int64_t> WordPiece::pieces(std::string_view text) const {
  const size_t bad = first_not_utf8(text);
  REEL_CHECK(bad == text.size(), "WordPiece: byte ", bad + 1, " of the text, ", hex(text[bad]), ", is not UTF-8");
  std::vector<int64_t> ids;
  // Where each special token comes next is looked up again only when that is passed: each is searched for once in all.
  struct Special {
    std::string_view token;
    int64_t id;
    size_t next;
  };
  std::vector<Special> specials;
  if (options_.read_specials)
    for (const std::string* token : {&options_.unknown, &options_.cls, &options_.sep, &options_.pad, &options_.mask})
      if (const auto id = vocabulary_.find(*token); id && !token->empty())
        specials.push_back({*token, *id, text.find(*token)});
  for (size_t at = 0;;) {
    const Special* found = nullptr;
    for (Special& special : specials) {
      if (special.next < at) special.next = text.find(special.token, at);
      if (special.next == std::string_view::npos) continue;
      if (!found || special.next < found->next ||
          (special.next == found->next && special.token.size() > found->token.size()))
        found = &special;
    }
    add_plain(text.substr(at, found ? found->next - at : std::string_view::npos), ids);
    if (!found) return ids;
    ids.push_back(found->id);
    at = found->next + found->token.size();
  }
}

std::vector<std::string> WordPiece::tokenize(std::string_view text) const {
  std::vector<std::string> tokens;
  for (const int64_t id : pieces(text)) tokens.push_back(vocabulary_.token(id));
  return tokens;
}

// ---- what a model reads ---------------------------------------------------------------------------------------------

std::vector<int64_t> WordPiece::encode(std::string_view text, int64_t max_length) const {
  REEL_CHECK(max_length >= 3, "WordPiece: max_length ", max_length, ", less than 3");
  std::vector<int64_t> ids = pieces(text);
  ids.resize(std::min(ids.size(), static_cast<size_t>(max_length - 2)));
  ids.insert(ids.begin(), cls_), ids.push_back(sep_);
  return ids;
}

std::vector<int64_t> WordPiece::encode(std::string_view text, std::string_view second, int64_t max_length) const {
  REEL_CHECK(max_length >= 3, "WordPiece: max_length ", max_length, ", less than 3");
  std::vector<int64_t> ids = pieces(text), others = pieces(second);
  const auto room = static_cast<size_t>(max_length - 3);
  if (ids.size() + others.size() > room) {
    // The longer one is cut down to the other one's length, then both; an odd piece is the longer one's.
    const bool swap = ids.size() > others.size();
    const size_t shorter = std::min({ids.size(), others.size(), room / 2}), longer = room - shorter;
    ids.resize(swap ? longer : shorter), others.resize(swap ? shorter : longer);
  }
  ids.insert(ids.begin(), cls_), ids.push_back(sep_);
  ids.insert(ids.end(), others.begin(), others.end()), ids.push_back(sep_);
  return ids;
}

Ragged WordPiece::encode_all(std::span<const std::string> texts, int64_t max_length) const {
  std::vector<int64_t> ids, lengths;
  for (const std::string& text : texts) {
    const std::vector<int64_t> one = encode(text, max_length);
    ids.insert(ids.end(), one.begin(), one.end()), lengths.push_back(static_cast<int64_t>(one.size()));
  }
  return {tensor(ids), Lengths::of(lengths)};
}

}  // namespace reel::data
