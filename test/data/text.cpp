// Lines, gzip and vocabularies.
#include "reel/data/text.h"

#include <zlib.h>

#include "reel/data/vocabulary.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using Lines = std::vector<std::string>;

TEST_CASE("lines are read with either line end and with or without byte order mark") {
  const Folder folder;
  const auto lines = [&](const std::string& bytes) { return data::read_lines(write(folder / "x", bytes)); };
  CHECK(lines("").empty());
  CHECK(lines("\n") == Lines{""});
  CHECK(lines("a\nb") == Lines{"a", "b"});
  CHECK(lines("a\r\n\r\nb\rc\r\n") == Lines{"a", "", "b\rc"});
  CHECK(lines("\xef\xbb\xbf"s + "a\n\xef\xbb\xbf") == Lines{"a", "\xef\xbb\xbf"});
  CHECK(lines("a\0b\n"s) == Lines{"a\0b"s});
  const std::string wide(200000, 'x');  // longer than any buffer
  CHECK(lines(wide + "\n" + wide) == Lines{wide, wide});
  CHECK_THROWS_WITH(data::read_lines(folder / "nothing"), Contains("No such file"));
}

TEST_CASE("a small gzip file does not become a huge text", "[gzip][cpu]") {
  const Folder folder;
  const auto path = write_gzip(folder / "x.gz", std::string(40 << 20, '\n'));
  CHECK(std::filesystem::file_size(path) < (64 << 10));
  CHECK_THROWS_WITH(data::read_lines(path), Contains("x.gz: byte ") && Contains("more than 200 times as long"));
  std::string lines;
  for (int64_t i = 0; lines.size() < 20 << 20; ++i) lines += std::to_string(i * 7919 % 1000003) + " is as usual\n";
  CHECK(data::read_lines(write_gzip(folder / "usual.gz", lines)).size() > 100000);
}

TEST_CASE("gzip files are read as what they hold", "[gzip]") {
  const Folder folder;
  std::string text;
  for (int i = 0; i < 30000; ++i) text += "line " + std::to_string(i * 7919 % 10007) + "\n";
  const auto path = write_gzip(folder / "x.gz", text);
  const Lines lines = data::read_lines(path);
  CHECK(lines.size() == 30000);
  CHECK(lines == data::read_lines(write(folder / "x", text)));
  // Several members are one file.
  write_gzip(folder / "members", "a\nb", "wb");
  write_gzip(folder / "members", "", "ab");
  write_gzip(folder / "members", "c\n", "ab");
  CHECK(data::read_lines(folder / "members") == Lines{"a", "bc"});
  CHECK(data::read_lines(write_gzip(folder / "empty", "")).empty());

  const std::string bytes = contents(path);
  const auto check = [&](const std::string& changed, const std::string& reason) {
    INFO(reason);
    CHECK_THROWS_WITH(data::read_lines(write(folder / "bad", changed)), Contains("bad: byte ") && Contains(reason));
  };
  check(bytes.substr(0, bytes.size() / 2), "end early");
  check(bytes.substr(0, bytes.size() - 1), "end early");
  check("\x1f\x8b", "end early");
  check("\x1f\x8b\xff\xff\xff\xff\xff\xff", "unknown compression method");
  std::string flipped = bytes;
  flipped[bytes.size() - 6] = static_cast<char>(flipped[bytes.size() - 6] + 1);
  check(flipped, "incorrect data check");
  check(bytes + "junk", "incorrect header check");
}

TEST_CASE("gzip files that end in zeros are read", "[gzip]") {
  const Folder folder;
  const std::string first = contents(write_gzip(folder / "1", "a\nb")),
                    second = contents(write_gzip(folder / "2", "c"));
  for (const size_t count : {1, 512, 200000}) {
    const std::string zeros(count, '\0');
    CHECK(data::read_lines(write(folder / "x", first + zeros)) == Lines{"a", "b"});
    CHECK(data::read_lines(write(folder / "x", first + zeros + second + zeros)) == Lines{"a", "bc"});
    CHECK_THROWS_WITH(data::read_lines(write(folder / "x", first + zeros + "junk")), Contains("incorrect header"));
  }
}

TEST_CASE("text is split at ASCII separators only") {
  CHECK(data::split_words("  a b\tc\r\n") == Lines{"a", "b", "c"});
  CHECK(data::split_words("8\xc2\xa0"
                          "1 x") == Lines{"8\xc2\xa0"
                                          "1",
                                          "x"});
  CHECK(data::split_words("").empty());
  CHECK(data::split_words("a,b;,c", ",;") == Lines{"a", "b", "c"});
  CHECK(data::lower_ascii("ÄbC") == "Äbc");
}

TEST_CASE("characters are those of UTF-8, and other bytes by themselves") {
  using Views = std::vector<std::string_view>;
  CHECK(data::split_characters("").empty());
  CHECK(data::split_characters("a\n\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") ==
        Views{"a", "\n", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"});
  // Latin-1, a character that is cut off, and one that takes more bytes than it needs.
  CHECK(data::split_characters("\xe9t\xe9\xe2\x82") == Views{"\xe9", "t", "\xe9", "\xe2", "\x82"});
  CHECK(data::split_characters("\xc0\x80") == Views{"\xc0", "\x80"});
}

TEST_CASE("a vocabulary numbers tokens by how often they were seen") {
  data::TokenCounts counts;
  counts.add_all(data::split_words("b a c a b d a <pad>"));
  counts.add("e", 2);
  CHECK(counts.size() == 6);
  CHECK(counts.total() == 10);
  CHECK(counts.count("a") == 3);
  CHECK(counts.count("z") == 0);

  const data::Vocabulary words(counts);
  CHECK(words.tokens() == Lines{"<unk>", "a", "b", "e", "<pad>", "c", "d"});
  CHECK(words.id("b") == 2);
  CHECK(words.id("never") == 0);
  CHECK(words.find("never") == std::nullopt);
  CHECK(words.count(1) == 3);
  CHECK(words.token(5) == "c");
  CHECK(words.encode(Lines{"a", "?", "e"}).to_vector<int64_t>() == std::vector<int64_t>{1, 0, 3});
  CHECK(words.decode(tensor({3, 0})) == Lines{"e", "<unk>"});
  CHECK_THROWS_WITH(words.token(7), Equals("Vocabulary: number 7 of 7 tokens"));

  const data::Vocabulary small(counts, {.min_count = 2, .max_size = 4, .specials = {"<pad>", "<unk>"}});
  CHECK(small.tokens() == Lines{"<pad>", "<unk>", "a", "b"});
  CHECK(small.count(0) == 1);
  CHECK(small.unknown() == 1);
  const data::Vocabulary tags(counts, {.specials = {}, .unknown = {}});
  CHECK(tags.size() == 6);
  CHECK_THROWS_WITH(tags.id("B-LOC"), Equals("Vocabulary: 'B-LOC' is not in it, and there is no unknown token"));
  CHECK_THROWS_WITH(data::Vocabulary(counts, {.specials = {}}), Contains("'<unk>' is not one of its specials"));
  CHECK_THROWS_WITH(data::Vocabulary(counts, {.specials = {"a", "a"}}), Contains("'a' is given twice"));
  CHECK_THROWS_WITH(data::Vocabulary(Lines{"a", "a"}), Contains("'a' is given twice"));
}

TEST_CASE("a vocabulary is saved and loaded as it is") {
  const Folder folder;
  data::Vocabulary words(Lines{"<s>", "tab\there", "back\\slash", "line\nend\r", "ünd", "", " "}, "ünd");
  words.add("more", 12);
  words.save(folder / "words");
  const data::Vocabulary loaded = data::Vocabulary::load(folder / "words");
  CHECK(loaded.tokens() == words.tokens());
  CHECK(loaded.counts() == words.counts());
  CHECK(loaded.id("?") == 4);
  CHECK(words.to_string() == contents(folder / "words"));
  CHECK(data::Vocabulary::from_string(words.to_string()).to_string() == words.to_string());
  CHECK_THROWS_WITH(data::Vocabulary::from_string("reel vocabulary 1 -\na"),
                    Equals("Vocabulary::from_string:2: expected TOKEN<TAB>COUNT"));
  CHECK(data::Vocabulary::load(write_gzip(folder / "words.gz", contents(folder / "words"))).tokens() == words.tokens());
  data::Vocabulary(Lines{"a"}).save(folder / "words");
  CHECK_FALSE(data::Vocabulary::load(folder / "words").unknown());

  const auto check = [&](const std::string& bytes, const std::string& message) {
    CHECK_THROWS_WITH(data::Vocabulary::load(write(folder / "bad", bytes)), Contains("bad:" + message));
  };
  check("", "1: expected 'reel vocabulary 1 ");
  check("words\n", "1: expected 'reel vocabulary 1 ");
  check("reel vocabulary 1 -\na", "2: expected TOKEN<TAB>COUNT");
  check("reel vocabulary 1 -\na\t1\na\\x\t1", "3: a backslash stands for nothing");
  check("reel vocabulary 1 -\na\\\t1", "2: a backslash stands for nothing");
  check("reel vocabulary 1 -\na\t-1", "2: '-1' is not a count");
  check("reel vocabulary 1 -\na\t1x", "2: '1x' is not a count");
  check("reel vocabulary 1 -\na\t1\na\t1", "3: the token appears twice");
  check("reel vocabulary 1 1\na\t1", "1: the unknown token's number is '1', of 1 tokens");
}
