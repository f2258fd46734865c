#include "reel/data/vocabulary.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "lib/data/parse.h"
#include "lib/io/file.h"
#include "lib/io/source.h"

// Vocabularies and their file: a header line with the number of the unknown token or "-", then TOKEN<TAB>COUNT for each
// token in the order of the numbers. Backslash, tab and line ends in tokens are escaped.
namespace reel::data {
namespace {

constexpr std::string_view kHeader = "reel vocabulary 1 ";
constexpr std::string_view kEscaped = "\\\t\n\r", kLetters = "\\tnr";

std::string escape(std::string_view token) {
  std::string text;
  for (const char c : token) {
    const size_t which = kEscaped.find(c);
    if (which == std::string_view::npos)
      text += c;
    else
      (text += '\\') += kLetters[which];
  }
  return text;
}

std::optional<std::string> unescape(std::string_view text) {
  std::string token;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      token += text[i];
      continue;
    }
    const size_t which = ++i < text.size() ? kLetters.find(text[i]) : std::string_view::npos;
    if (which == std::string_view::npos) return {};
    token += kEscaped[which];
  }
  return token;
}

}  // namespace

// ---- counting -------------------------------------------------------------------------------------------------------

void TokenCounts::add(std::string_view token, int64_t times) {
  REEL_CHECK(times >= 0, "TokenCounts: '", token, "' cannot be seen ", times, " times");
  auto found = counts_.find(token);
  if (found == counts_.end()) found = counts_.emplace(token, 0).first;
  found->second += times;
  total_ += times;
}

int64_t TokenCounts::count(std::string_view token) const {
  const auto found = counts_.find(token);
  return found == counts_.end() ? 0 : found->second;
}

// ---- numbering ------------------------------------------------------------------------------------------------------

Vocabulary::Vocabulary(const TokenCounts& counts, const VocabularyOptions& options) {
  for (const std::string& special : options.specials) {
    REEL_CHECK(!contains(special), "Vocabulary: the special '", special, "' is given twice");
    add(special, counts.count(special));
  }
  set_unknown(options.unknown);
  std::vector<const std::pair<const std::string, int64_t>*> others;
  for (const auto& entry : counts.counts())
    if (entry.second >= options.min_count && !contains(entry.first)) others.push_back(&entry);
  // Ties are broken by the token, so that numbers do not depend on the order of the text or of a hash table.
  std::sort(others.begin(), others.end(), [](const auto* a, const auto* b) {
    return a->second != b->second ? a->second > b->second : a->first < b->first;
  });
  for (const auto* entry : others) {
    if (options.max_size && size() >= *options.max_size) break;
    add(entry->first, entry->second);
  }
}

Vocabulary::Vocabulary(const std::vector<std::string>& tokens, std::optional<std::string> unknown) {
  for (const std::string& token : tokens) {
    REEL_CHECK(!contains(token), "Vocabulary: '", token, "' is given twice; TokenCounts counts what repeats itself");
    add(token);
  }
  set_unknown(unknown);
}

void Vocabulary::set_unknown(const std::optional<std::string>& unknown) {
  if (!unknown) return;
  unknown_ = find(*unknown);
  REEL_CHECK(unknown_, "Vocabulary: the unknown token '", *unknown, "' is not one of its specials");
}

int64_t Vocabulary::add(std::string_view token, int64_t count) {
  if (const auto id = find(token)) return *id;
  tokens_.emplace_back(token);
  counts_.push_back(count);
  ids_.emplace(tokens_.back(), size() - 1);
  return size() - 1;
}

std::optional<int64_t> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

int64_t Vocabulary::id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found != ids_.end()) return found->second;
  REEL_CHECK(unknown_, "Vocabulary: '", token, "' is not in it, and there is no unknown token");
  return *unknown_;
}

const std::string& Vocabulary::token(int64_t id) const {
  REEL_CHECK(id >= 0 && id < size(), "Vocabulary: number ", id, " of ", size(), " tokens");
  return tokens_[id];
}

int64_t Vocabulary::count(int64_t id) const { return token(id), counts_[id]; }

std::vector<std::string> Vocabulary::decode(const Tensor& ids) const {
  std::vector<std::string> tokens;
  for (const int64_t id : ids.to_vector<int64_t>()) tokens.push_back(token(id));
  return tokens;
}

// ---- files ----------------------------------------------------------------------------------------------------------

std::string Vocabulary::to_string() const {
  std::string text(kHeader);
  text += (unknown_ ? std::to_string(*unknown_) : "-") + "\n";
  for (int64_t i = 0; i < size(); ++i) text += escape(tokens_[i]) + "\t" + std::to_string(counts_[i]) + "\n";
  return text;
}

void Vocabulary::save(const std::filesystem::path& path) const {
  const std::string text = to_string();
  io::AtomicFile file(path);
  file.write(text.data(), static_cast<int64_t>(text.size()));
  file.commit();
}

Vocabulary Vocabulary::parse(const std::string& name, const std::function<bool(std::string&)>& read_line) {
  int64_t line_number = 0;
  std::string line;
  const auto next = [&] { return ++line_number, read_line(line); };
  const auto fail = [&](const auto&... parts) { reel::detail::fail(name, ":", line_number, ": ", parts...); };
  if (!next() || !line.starts_with(kHeader)) fail("expected '", kHeader, "…'");
  const std::string unknown = line.substr(kHeader.size());
  Vocabulary words;
  while (next()) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) fail("expected TOKEN<TAB>COUNT");
    const auto token = unescape(std::string_view(line).substr(0, tab));
    if (!token) fail("a backslash stands for nothing");
    int64_t count = 0;
    if (!parse_number(std::string_view(line).substr(tab + 1), count) || count < 0)
      fail("'", line.substr(tab + 1, 100), "' is not a count");
    if (words.contains(*token)) fail("the token appears twice");
    words.add(*token, count);
  }
  if (unknown != "-") {
    int64_t id = 0;
    line_number = 1;
    if (!parse_number(unknown, id) || id < 0 || id >= words.size())
      fail("the unknown token's number is '", unknown.substr(0, 100), "', of ", words.size(), " tokens");
    words.unknown_ = id;
  }
  return words;
}

Vocabulary Vocabulary::load(const std::filesystem::path& path) {
  io::Source source(path);
  return parse(path.string(), [&](std::string& line) { return source.read_line(line); });
}

Vocabulary Vocabulary::from_string(const std::string& text) {
  std::istringstream lines(text);
  return parse("Vocabulary::from_string", [&](std::string& line) { return bool(std::getline(lines, line)); });
}

}  // namespace reel::data
