#include "reel/data/word_piece.h"

#include <nlohmann/json.hpp>

#include "reel/data.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
using data::Vocabulary;
using data::WordPiece;
using data::WordPieceOptions;
using nlohmann::json;
using Tokens = std::vector<std::string>;

namespace {

const Tokens kPieces{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##b", "##a", "c"};

WordPiece small(WordPieceOptions options = {}) { return WordPiece(Vocabulary(kPieces), std::move(options)); }

WordPieceOptions options_of(const json& test) {
  WordPieceOptions o{.lower_case = test["lower_case"],
                     .split_chinese = test["split_chinese"],
                     .read_specials = test.value("read_specials", true)};
  if (!test["strip_accents"].is_null()) o.strip_accents = test["strip_accents"].get<bool>();
  return o;
}

Tokens tokens_of(const WordPiece& words, const json& test) {
  const std::string text = test["text"];
  if (!test.contains("max_length")) return words.tokenize(text);
  const std::vector<int64_t> ids = test.contains("second")
                                       ? words.encode(text, test["second"].get<std::string>(), test["max_length"])
                                       : words.encode(text, test["max_length"].get<int64_t>());
  Tokens tokens;
  for (const int64_t id : ids) tokens.push_back(words.vocabulary().token(id));
  return tokens;
}

/// Compares with a file of test/reference/bert/word_piece.py.
void check_file(const std::filesystem::path& path, size_t at_least) {
  const json file = json::parse(contents(path));
  REQUIRE(file["cases"].size() >= at_least);
  const Vocabulary vocabulary(file["vocabulary"].get<Tokens>());
  std::map<std::string, WordPiece> tokenizers;  // by options
  for (const json& test : file["cases"]) {
    json how = test;
    for (const char* rest : {"text", "second", "max_length", "tokens"}) how.erase(rest);
    const auto words = tokenizers.try_emplace(how.dump(), vocabulary, options_of(test)).first;
    if (tokens_of(words->second, test) == test["tokens"].get<Tokens>()) continue;
    FAIL_CHECK(test.dump(-1, ' ', true) << "\n gives " << json(tokens_of(words->second, test)).dump(-1, ' ', true));
  }
}

/// A folder with a vocab.txt of kPieces and these settings.
void write_folder(const Folder& folder, const std::string& settings) {
  std::string text;
  for (const std::string& piece : kPieces) text += piece + "\n";
  write(folder / "vocab.txt", text);
  write(folder / "tokenizer_config.json", settings);
}

}  // namespace

TEST_CASE("WordPiece splits text as BertTokenizer does") { check_file("test/reference/bert/word_piece.json", 100); }

TEST_CASE("WordPiece splits random text as BertTokenizer does") {
  const char* const python = std::getenv("PYTHON");
  const std::string command = (python ? "'"s + python : "'python3"s) + "' ";
  if (std::system((command + "-c 'import transformers' 2>/dev/null").c_str()) != 0) return;
  const Folder folder;
  const char* const count = std::getenv("REEL_TEST_TEXTS");
  const std::string arguments = " 1 "s + (count ? count : "500") + " '" + (folder / "texts.json").string() + "'";
  REQUIRE(std::system((command + "test/reference/bert/word_piece.py" + arguments).c_str()) == 0);
  check_file(folder / "texts.json", 500);
}

TEST_CASE("WordPiece encodes for a model") {
  const WordPiece words = small();
  CHECK(words.encode("ab c") == std::vector<int64_t>{2, 5, 7, 9, 3});
  CHECK(words.encode("") == std::vector<int64_t>{2, 3});
  CHECK(words.encode("a", "b") == std::vector<int64_t>{2, 5, 3, 6, 3});
  CHECK(words.encode("a b c", 4) == std::vector<int64_t>{2, 5, 6, 3});
  CHECK(words.encode(std::string(1000, ',')).size() == 512);
  CHECK(words.cls() == 2);
  CHECK(words.sep() == 3);
  CHECK(words.pad() == 0);
  CHECK(words.unknown() == 1);
  CHECK(words.mask() == 4);
  const Tokens texts{"ab c", "", "c"};
  const Ragged all = words.encode_all(texts);
  CHECK(all.lengths->to_vector() == std::vector<int64_t>{5, 2, 3});
  CHECK(all.values.to_vector<int64_t>() == std::vector<int64_t>{2, 5, 7, 9, 3, 2, 3, 2, 9, 3});
  const Ragged none = words.encode_all({});
  CHECK(none.size() == 0);
  CHECK(none.values.shape() == Shape{0});
  CHECK(none.values.dtype() == kInt64);
  for (const int64_t length : {2, 0, -1}) {
    CHECK_THROWS_WITH(words.encode("a", length), Contains("less than 3"));
    CHECK_THROWS_WITH(words.encode("a", "b", length), Contains("less than 3"));
  }
}

TEST_CASE("WordPiece refuses text that is not UTF-8 and names the byte") {
  const WordPiece words = small();
  const std::pair<std::string, const char*> cases[] = {
      {"\xff", "byte 1 of the text, 0xff"},      {"ab\xe9", "byte 3 of the text, 0xe9"},
      {"a\xc3(", "byte 2 of the text, 0xc3"},    {"\xed\xa0\x80", "byte 1 of the text, 0xed"},
      {"a\xc0\x80", "byte 2 of the text, 0xc0"}, {"[SEP]\xf4\x90\x80\x80", "byte 6 of the text, 0xf4"}};
  for (const auto& [text, message] : cases) {
    CHECK_THROWS_WITH(words.pieces(text), Contains(message) && Contains("not UTF-8"));
    CHECK_THROWS_AS(words.encode("a", text), Error);
    CHECK_THROWS_AS(words.encode_all(Tokens{"a", text}), Error);
  }
}

TEST_CASE("a long text of special tokens takes time that grows with its length alone") {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "[SEP]";
  CHECK(small().pieces(text) == std::vector<int64_t>(200000, 3));
  CHECK(small().pieces(std::string(1000000, 'a')) == std::vector<int64_t>{1});
}

TEST_CASE("WordPiece needs its special tokens") {
  CHECK_THROWS_WITH(WordPiece(Vocabulary(Tokens{"a"})), Contains("the special token '[UNK]'") && Contains("1 pieces"));
  CHECK_THROWS_WITH(small({.sep = "</s>"}), Contains("'</s>' is not in the vocabulary of 10 pieces"));
  CHECK_THROWS_WITH(small({.pad = ""}), Contains("''"));
  CHECK_THROWS_WITH(small({.max_word_chars = 0}), Contains("at most 0 characters"));
  CHECK_FALSE(small({.mask = "<mask>"}).mask());
  CHECK_FALSE(small({.mask = ""}).mask());
  CHECK(small({.cls = "c"}).encode("a") == std::vector<int64_t>{9, 5, 3});
  CHECK(small({.max_word_chars = 2}).tokenize("ab aba") == Tokens{"a", "##b", "[UNK]"});
}

TEST_CASE("WordPiece reads a model's folder") {
  const Folder folder;
  write_folder(folder, "{}");
  CHECK(WordPiece::load(folder.path).tokenize("A ab") == Tokens{"a", "a", "##b"});
  CHECK(WordPiece::load(folder / "vocab.txt", {.lower_case = false}).tokenize("A ab") == Tokens{"[UNK]", "a", "##b"});
  CHECK(WordPiece::load(folder.path, {.lower_case = false}).tokenize("A") == Tokens{"[UNK]"});
  // What the file says comes first.
  write(folder / "tokenizer_config.json", R"({"do_lower_case": false, "strip_accents": true})");
  CHECK(WordPiece::load(folder.path).tokenize("A \u00e1b") == Tokens{"[UNK]", "a", "##b"});
  write(
      folder / "tokenizer_config.json",
      R"({"cls_token": "c", "unk_token": {"content": "b", "special": true}, "tokenizer_class": "BertTokenizerFast"})");
  CHECK(WordPiece::load(folder.path).encode("q") == std::vector<int64_t>{9, 6, 3});
  const WordPieceOptions all = WordPieceOptions{}.with_settings_of(write(folder / "all.json", R"({
    "do_lower_case": false, "strip_accents": false, "tokenize_chinese_chars": false, "unk_token": "u",
    "cls_token": "c", "sep_token": "s", "pad_token": "p", "mask_token": "m"})"));
  CHECK_FALSE((all.lower_case || all.split_chinese || all.strip_accents.value()));
  CHECK(all.unknown + all.cls + all.sep + all.pad + all.mask == "ucspm");
  write(folder / "vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\na\r\n");
  write(folder / "tokenizer_config.json", R"({"strip_accents": null, "unk_token": null})");
  CHECK(WordPiece::load(folder.path).encode("\u00e1") == std::vector<int64_t>{2, 4, 3});
  std::filesystem::remove(folder / "tokenizer_config.json");
  CHECK(WordPiece::load(folder.path).encode("\u00e1") == std::vector<int64_t>{2, 4, 3});
}

TEST_CASE("WordPiece refuses files that are not those of BERT's tokenizer") {
  const Folder folder;
  const std::string deep = R"({"strip_accents": )" + std::string(500000, '[') + std::string(500000, ']') + "}";
  const std::pair<std::string, const char*> settings[] = {
      {"", "tokenizer_config.json: "},
      {"[]", "not a JSON object"},
      {"{\"a\": ", "tokenizer_config.json: "},
      {R"({"do_lower_case": 1})", "'do_lower_case' is of another kind: 1"},
      {R"({"do_lower_case": "true"})", "'do_lower_case' is of another kind: a JSON string"},
      {deep, "'strip_accents' is of another kind: a JSON array"},
      {R"({"tokenizer_class": "BertJapaneseTokenizer"})", "'tokenizer_class' is BertJapaneseTokenizer"},
      {R"({"tokenizer_class": "MPNetTokenizer"})", "not BertTokenizer"},
      {R"({"do_basic_tokenize": false})", "not split at punctuation"},
      {R"({"unk_token": {"special": true}})", "'unk_token' has no text 'content'"},
      {R"({"unk_token": {"content": 3}})", "'unk_token' has no text 'content'"},
      {R"({"unk_token": 3})", "'unk_token' is of another kind: 3"},
      {R"({"unk_token": "<unk>"})", "'<unk>' is not in the vocabulary"},
      {R"({"a": ")" + std::string(1 << 20, 'a') + "\"}", "are no settings"}};
  for (const auto& [text, message] : settings) {
    write_folder(folder, text);
    CHECK_THROWS_WITH(WordPiece::load(folder.path), Contains(message));
  }
  write(folder / "vocab.txt", "[PAD]\na\n[UNK]\na\n");
  CHECK_THROWS_WITH(WordPiece::load(folder / "vocab.txt"), Contains("vocab.txt:4: 'a' appears twice"));
  write(folder / "vocab.txt", "");
  CHECK_THROWS_WITH(WordPiece::load(folder / "vocab.txt"), Contains("vocabulary of 0 pieces"));
  CHECK_THROWS_AS(WordPiece::load(folder / "missing.txt"), Error);
  std::filesystem::remove(folder / "vocab.txt");
  write(folder / "tokenizer_config.json", "{}");
  CHECK_THROWS_WITH(WordPiece::load(folder.path), Contains("vocab.txt"));
}
