#include "reel/data/conll.h"

#include <cstdlib>

#include "reel/data/tags.h"
#include "reel/data/text.h"
#include "reel/error.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using Column = std::vector<std::string>;

TEST_CASE("columns are read sentence by sentence") {
  const Folder folder;
  const auto path =
      write(folder / "x.conll",
            "-DOCSTART- -X- O\n\nEU NNP  B-ORG\nrejects VBZ O\n \t \n\nGerman\tJJ\tB-MISC\r\n8\xc2\xa0ü . O\n"
            "-DOCSTART- -X- O\nlast X O");
  const auto sentences = data::read_conll(path);
  REQUIRE(sentences.size() == 3);
  CHECK(sentences[0].columns == std::vector<Column>{{"EU", "rejects"}, {"NNP", "VBZ"}, {"B-ORG", "O"}});
  CHECK(sentences[1].columns[0] == Column{"German", "8\xc2\xa0ü"});
  CHECK(sentences[2].size() == 1);
  CHECK(data::read_conll(write_gzip(folder / "x.gz", contents(path))).size() == 3);
  CHECK(data::read_conll(write(folder / "e", "")).empty());
  // Fields with spaces in them.
  CHECK(data::read_conll(write(folder / "t", "New York\tLOC\n"), {.separators = "\t"})[0].columns[0] ==
        Column{"New York"});
  CHECK(data::read_conll(write(folder / "one", "a\nb\n\nc"), {.columns = 1}).size() == 2);

  CHECK_THROWS_WITH(data::read_conll(write(folder / "bad", "a O\nb\n")),
                    Equals((folder / "bad").string() + ":2: 1 columns, expected 2 as in line 1"));
  CHECK_THROWS_WITH(data::read_conll(path, {.columns = 2}), Contains(":3: 3 columns, expected 2"));
}

namespace {

// With a range, an empty node, features and everything else.
const std::string kConllu =
    "# sent_id = 1\n"
    "#text=vámonos al mar\n"
    "# newpar\n"
    "0.1\t_\t_\tPRON\t_\tCase=Nom\t_\t_\t1:nsubj\t_\n"
    "1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tvamos\tir\tVERB\t_\tMood=Imp|Number=Plur\t0\troot\t_\t_\n"
    "2\tnos\tnosotros\tPRON\t_\tCase=Acc\t1\tobj\t_\t_\n"
    "3-4\tal\t_\t_\t_\tTypo=Yes\t_\t_\t_\tSpaceAfter=No\n"
    "3\ta\ta\tADP\t_\t_\t5\tcase\t_\t_\n"
    "4\tel\tel\tDET\t_\t_\t5\tdet\t_\t_\n"
    "5\tmar\tmar\tNOUN\t_\t_\t1\tobl\t_\t_\n"
    "5.1\tno es\tser\tVERB\t_\t_\t_\t_\t1:conj\t_\n"
    "\n"
    "1\tno head\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "\n";

}  // namespace

TEST_CASE("CoNLL-U is read whole and written again byte for byte") {
  const Folder folder;
  const auto sentences = data::read_conllu(write(folder / "x.conllu", kConllu));
  REQUIRE(sentences.size() == 2);
  const data::ConlluSentence& first = sentences[0];
  CHECK(first.size() == 5);
  CHECK(first.words[1].form == "nos");
  CHECK(first.words[1].head == 1);
  CHECK(first.words[0].head == 0);
  CHECK(first.words[0].feats == std::vector<std::pair<std::string, std::string>>{{"Mood", "Imp"}, {"Number", "Plur"}});
  CHECK(first.ranges[1].first == 3);
  CHECK(first.ranges[1].misc == "SpaceAfter=No");
  CHECK(first.empties[1].after == 5);
  CHECK(first.empties[1].word.form == "no es");
  CHECK(first.metadata("sent_id") == "1");
  CHECK(first.metadata("text") == "vámonos al mar");
  CHECK(first.metadata("newpar") == std::nullopt);
  CHECK(sentences[1].words[0].head == -1);
  CHECK(first.to_string() + sentences[1].to_string() == kConllu);
  CHECK(data::read_conllu(write_gzip(folder / "x.gz", kConllu)).size() == 2);
  CHECK(data::read_conllu(write(folder / "x", kConllu.substr(0, kConllu.size() - 2))).size() == 2);
  CHECK(data::read_conllu(write(folder / "x", "\n\n")).empty());
}

TEST_CASE("malformed CoNLL-U is refused with the line and the reason") {
  const Folder folder;
  const auto check = [&](const std::string& text, const std::string& message) {
    INFO(text);
    CHECK_THROWS_WITH(data::read_conllu(write(folder / "x", text)), Equals((folder / "x").string() + ":" + message));
  };
  const auto word = [](const std::string& id, const std::string& feats = "_", const std::string& head = "_") {
    return id + "\ta\t_\t_\t_\t" + feats + "\t" + head + "\t_\t_\t_\n";
  };
  check("1\ta\n", "1: expected 10 columns separated by tabs");
  check("1\ta\t_\t_\t_\t_\t_\t_\t_\t_\t_\n", "1: expected 10 columns separated by tabs");
  check(" \n", "1: expected 10 columns separated by tabs");
  check("1\t\t_\t_\t_\t_\t_\t_\t_\t_\n", "1: column 2 is empty");
  check(word("2"), "1: ID 2 where 1 was expected");
  check(word("1") + word("3"), "2: ID 3 where 2 was expected");
  check(word("x"), "1: ID 'x' is not a number");
  check(word("01"), "1: ID '01' is not a number");
  check(word("+1"), "1: ID '+1' is not a number");
  check(word("1-"), "1: ID '' is not a number");
  check(word("-1"), "1: ID '' is not a number");
  check(word("99999999999999999999"), "1: ID '99999999999999999999' is not a number");
  check(word("1-2") + word("1") + "\n", "3: the range 1-2 in a sentence of 1 words");
  check(word("2-3"), "1: the range 2-3 after word 0");
  check(word("1-3") + word("1") + word("2-3"), "3: the range 2-3 overlaps another");
  check(word("1-2", "_", "1"), "1: a range has more than a FORM, FEATS and MISC");
  check(word("1") + word("0.1"), "2: the empty node 0.1 after word 1");
  check(word("1") + word("1.2"), "2: the empty node 1.2 after word 1");
  check(word("1", "Case"), "1: FEATS 'Case' is not Name=Value");
  check(word("1", "Case=Nom|"), "1: FEATS '' is not Name=Value");
  check(word("1", "A=B|_"), "1: FEATS '_' is not Name=Value");
  check(word("1", "_", "2"), "1: HEAD 2 in a sentence of 1 words");
  check(word("1", "_", "-1"), "1: HEAD '-1' is not a number");
  check("# a\n\n", "2: a sentence without words");
  check(word("1") + "# late\n", "2: a comment inside a sentence");
}

TEST_CASE("real treebanks and tagged texts are read without loss", "[real]") {
  const char* data = std::getenv("REEL_DATA");
  if (!data) {
    WARN("skipped: REEL_DATA does not name a folder");
    return;
  }
  const std::filesystem::path folder = data;
  for (const auto& [name, sentences, words] :
       {std::tuple{"train", 12544, 204577}, std::tuple{"dev", 2001, 25147}, std::tuple{"test", 2077, 25094}}) {
    const auto path = folder / ("ud-english-ewt/en_ewt-ud-" + std::string(name) + ".conllu.gz");
    const auto read = data::read_conllu(path);
    CHECK(read.size() == static_cast<size_t>(sentences));
    std::string text, lines;
    int64_t count = 0;
    for (const auto& sentence : read) text += sentence.to_string(), count += sentence.size();
    CHECK(count == words);
    data::for_each_line(path, [&](std::string_view line) { (lines += line) += '\n'; });
    CHECK(text == lines);
  }
  const auto count = [&](const char* name) {
    std::pair<size_t, int64_t> all;
    for (const auto& sentence : data::read_conll(folder / name)) ++all.first, all.second += sentence.size();
    return all;
  };
  CHECK(count("wnut17/wnut17train.conll") == std::pair<size_t, int64_t>(3394, 62730));
  CHECK(count("wnut17/emerging.dev.conll") == std::pair<size_t, int64_t>(1009, 15733));
  CHECK(count("wnut17/emerging.test.annotated") == std::pair<size_t, int64_t>(1287, 23394));
  CHECK(count("wikigold/wikigold.conll.txt") == std::pair<size_t, int64_t>(1696, 39007));
  CHECK(count("wikiann-en/dev.gz") == std::pair<size_t, int64_t>(10000, 80536));
}

TEST_CASE("the tags of IOB1 and IOBES become IOB2") {
  using data::TagScheme;
  const Column iob1{"I-A", "I-A", "B-A", "I-B", "O", "I-B"}, iob2{"B-A", "I-A", "B-A", "B-B", "O", "B-B"},
      iobes{"B-A", "E-A", "S-A", "S-B", "O", "S-B"}, bilou{"B-A", "L-A", "U-A", "U-B", "O", "U-B"};
  CHECK(data::find_tag_scheme({iob1}) == TagScheme::kIOB1);
  CHECK(data::find_tag_scheme({iob2, {"O", "O"}, {}}) == TagScheme::kIOB2);
  CHECK(data::find_tag_scheme({iobes, bilou}) == TagScheme::kIOBES);
  CHECK(data::find_tag_scheme({{"NOUN", "VERB"}, {"B-NOUN", "NOUN"}}) == TagScheme::kNone);
  CHECK(data::find_tag_scheme({{"N", "O", "V"}, {"L", "S", "^"}}) == TagScheme::kNone);
  CHECK(data::to_iob2(iob1, TagScheme::kIOB1) == iob2);
  CHECK(data::to_iob2(iob2, TagScheme::kIOB2) == iob2);
  CHECK(data::to_iob2(iobes, TagScheme::kIOBES) == iob2);
  CHECK(data::to_iob2(bilou, TagScheme::kIOBES) == iob2);
  CHECK(data::to_iob2({"NOUN"}, TagScheme::kNone) == Column{"NOUN"});
  CHECK_THROWS_WITH(data::to_iob2({"O", "I-A"}, TagScheme::kIOB2), Contains("tag 1 is I-A behind O"));
  CHECK_THROWS_WITH(data::to_iob2({"S-A"}, TagScheme::kIOB2), Contains("tag 0 is 'S-A'"));
}

TEST_CASE("one tag among many does not decide a file's scheme without being named") {
  using data::TagScheme;
  const std::vector<Column> good(200, {"O", "B-PER", "I-PER", "O", "B-LOC"});
  REQUIRE(data::find_tag_scheme(good) == TagScheme::kIOB2);
  const auto error = [&](const std::vector<Column>& sentences, const std::string& message) {
    INFO(message);
    CHECK_THROWS_WITH(data::find_tag_scheme(sentences), Contains(message) && Contains("choose a scheme"));
  };
  for (const char* typo : {"0", "o", "NOUN", "B_PER", "b-per", "PER-B", "B", "", "B-", "-PER", "BPER", "OO", "_"}) {
    std::vector<Column> sentences = good;
    sentences[150][3] = typo;
    error(sentences, "sentences[150][3] is '" + std::string(typo) + "', which is neither O nor a mark with a type");
  }
  for (const Column& other : std::vector<Column>{{"O", "B_PER", "I_PER"},
                                                 {"O", "b-per", "i-per"},
                                                 {"O", "PER-B", "PER-I"},
                                                 {"O", "B", "I"},
                                                 {"0", "B-PER", "0"},
                                                 {"o", "B-PER", "o"}})
    error(std::vector<Column>(200, other), "find_tag_scheme: sentences[0][" + std::string(other[0] == "O" ? "1" : "0"));
  std::vector<Column> sentences = good;
  sentences[7] = {"O", "I-PER", "O"};  // of IOB1, where others are of IOB2
  error(sentences, "sentences[7][1] is 'I-PER' and begins an entity, which is of IOB1, but sentences[0][1] is 'B-PER'");
  sentences = good;
  sentences[9][4] = "S-LOC";
  error(sentences, "sentences[9][4] is 'S-LOC', which is of IOBES, but sentences[0][2] is 'I-PER'");
}

TEST_CASE("comments of column files are skipped, and bytes that are not UTF-8 are named or taken as Latin-1") {
  const Folder folder;
  const auto path = write(folder / "x.conll", "# id 7\na O\n#b O\n# c d e\n\n# id 8\nc O\n");
  CHECK_THROWS_WITH(data::read_conll(path), Contains(":2: 2 columns, expected 3") && Contains("comment"));
  const auto sentences = data::read_conll(path, {.comment = "# "});
  REQUIRE(sentences.size() == 2);
  CHECK(sentences[0].columns[0] == Column{"a", "#b"});

  const auto latin = write(folder / "latin", "a O\nM\xfcnchen B-LOC\n");
  CHECK_THROWS_WITH(data::read_conll(latin), Contains("latin:2: byte 2 of the line, 0xfc, is not UTF-8"));
  CHECK(data::read_conll(latin, {.latin1 = true})[0].columns[0] == Column{"a", "München"});
  for (const char* bad : {"\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\x80", "\xe2\x82", "\xf8\x88\x80\x80\x80"})
    CHECK_THROWS_WITH(data::read_conll(write(folder / "bad", std::string("x") + bad)), Contains("is not UTF-8"));
  CHECK(data::read_conll(write(folder / "good", "\xf0\x9f\x98\x80 \xe2\x82\xac O"))[0].size() == 1);
}

TEST_CASE("column files with comments of as many columns, or lines that end with CR alone, are refused") {
  const Folder folder;
  // As MultiCoNER writes them.
  const auto path = write(folder / "x", "# id 52\tdomain=en\nthe _ _ O\n\n# id 53\tdomain=en\na _ _ O\n");
  CHECK_THROWS_WITH(data::read_conll(path), Contains("each sentence begins with a line of '#': are these comments"));
  CHECK(data::read_conll(path, {.comment = "# "})[1].columns[0] == Column{"a"});
  CHECK(data::read_conll(write(folder / "x", "# 3 O\nm _ O\n\na _ O\n")).size() == 2);  // a pound sign

  for (const std::string line_end : {"\r", "\v\r"}) {
    const auto old = write(folder / "x", "EU B-ORG" + line_end + "x O" + line_end + "y O" + line_end);
    CHECK_THROWS_WITH(data::read_conll(old), Contains("x:1: a CR without a LF"));
  }
  const std::string word = "1\ta\ta\tX\t_\t_\t0\troot\t_\t_";
  CHECK_THROWS_WITH(data::read_conllu(write(folder / "x", word + "\r\r")), Contains("x:1: a CR without a LF"));
  CHECK_THROWS_WITH(data::read_conllu(write(folder / "x", word + "\xff\n\n")), Contains("0xff, is not UTF-8"));
  CHECK_THROWS_WITH(data::read_conll(write(folder / "x", "a O\nb"s + '\0' + " O\n")),
                    Contains("x:2: the text has a NUL"));
}
