#include "reel/data/word_vectors.h"

#include <cmath>

#include "reel/ops.h"
#include "reel/random.h"
#include "test/support/folder.h"
#include "test/support/pch.h"

using namespace reel;
using namespace std::string_literals;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using Strings = std::vector<std::string>;
constexpr auto kBinary = data::WordVectorFormat::kWord2VecBinary;

TEST_CASE("word vectors as GloVe and word2vec write them") {
  const Folder folder;
  const auto glove =
      data::read_word_vectors(write(folder / "g", "the 1 2.5 -3e-2\n. . . 4 5 6\nthe 7 8 9\n\n"), {.header = false});
  CHECK(glove.vectors.shape() == Shape{2, 3});
  CHECK(glove.words.tokens() == Strings{"the", ". . ."});
  CHECK(glove.vectors[1].to_vector<float>() == std::vector<float>{4, 5, 6});
  CHECK(glove.vectors[0][2].item<float>() == -0.03f);

  const auto word2vec = data::read_word_vectors(write(folder / "w", "2 3\n</s> 1 2 3 \nü 4 5 6 \n"));
  CHECK(word2vec.words.tokens() == Strings{"</s>", "ü"});
  CHECK(word2vec.vectors.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(data::read_word_vectors(folder / "w", {.max_words = 1}).vectors.shape() == Shape{1, 3});
  const auto kept = data::read_word_vectors(folder / "w", {.keep = [](std::string_view word) { return word == "ü"; }});
  CHECK(kept.words.tokens() == Strings{"ü"});

  for (const std::string end : {"\n", ""}) {
    const auto path = write(folder / "b", "2 2\na \0\0\x80\x3f\0\0\0\x40"s + end + "b c"s.substr(0, 1) +
                                              " \0\0\x40\x40\0\0\x80\x40"s + end);
    const auto binary = data::read_word_vectors(path, {.format = kBinary});
    CHECK(binary.words.tokens() == Strings{"a", "b"});
    CHECK(binary.vectors.to_vector<float>() == std::vector<float>{1, 2, 3, 4});
    CHECK(data::read_word_vectors(write_gzip(folder / "b.gz", contents(path)), {.format = kBinary}).words.size() == 2);
  }
  CHECK(data::read_word_vectors(write(folder / "e", "")).words.size() == 0);
  CHECK(data::read_word_vectors(write(folder / "e", "0 5\n")).vectors.shape() == Shape{0, 5});
  CHECK(data::read_word_vectors(write(folder / "e", "0 5\n"), {.format = kBinary}).vectors.shape() == Shape{0, 5});
}

TEST_CASE("word vectors are written and read again without loss", "[cpu]") {
  const Folder folder;
  manual_seed(1);
  const data::Vocabulary words(Strings{"a", "bé", "c"});
  const Tensor vectors = randn({3, 5});
  for (const auto format : {data::WordVectorFormat::kText, kBinary}) {
    data::write_word_vectors(folder / "v", words, vectors, format);
    const auto read = data::read_word_vectors(folder / "v", {.format = format});
    CHECK(read.words.tokens() == words.tokens());
    CHECK(equal(read.vectors, vectors));
  }
  data::write_word_vectors(folder / "v", data::Vocabulary(), zeros({0, 2}));
  CHECK(contents(folder / "v") == "0 2\n");
  CHECK_THROWS_WITH(data::write_word_vectors(folder / "v", data::Vocabulary(Strings{"a b"}), ones({1, 2})),
                    Contains("'a b' cannot be written"));
  CHECK_THROWS_WITH(data::write_word_vectors(folder / "v", words, ones({2, 2})),
                    Contains("each of 3 words, got shape [2, 2]"));
  CHECK(folder.count() == 1);
}

TEST_CASE("bytes behind the last binary word vector are an Error") {
  const Folder folder;
  const std::string one = "a " + std::string(8, '\1'), head = "1 2\n";
  const auto read = [&](const std::string& bytes, data::WordVectorOptions options = {}) {
    options.format = kBinary;
    return data::read_word_vectors(write(folder / "v.bin", bytes), options).words.size();
  };
  for (const char* space : {"", "\n", "\r\n", " ", "\n\n"}) CHECK(read(head + one + space) == 1);
  for (const std::string& more : {one, "\n" + one, std::string(8, '\1'), std::string("\0", 1), std::string("x")}) {
    CHECK_THROWS_WITH(read(head + one + more), Contains("more follows the last of 1 vectors of 2 float32 numbers"));
    CHECK(read(head + one + more, {.max_words = 1}) == 1);
  }
  CHECK_THROWS_WITH(read("0 2\n" + one), Contains("more follows"));
}

TEST_CASE("a number of a text file that float32 does not hold is an Error") {
  const Folder folder;
  CHECK_THROWS_WITH(data::read_word_vectors(write(folder / "v", "a 1 1e39\nb 1 2\n"), {.header = false}),
                    Contains("number 2 is none"));
  CHECK(std::isinf(data::read_word_vectors(write(folder / "v", "a 1 inf\n")).vectors[0][1].item<float>()));
}

TEST_CASE("word vectors take a number nearer to 0 than any double as 0") {
  const Folder folder;
  CHECK(data::read_word_vectors(write(folder / "v", "a 1e-400 2\n")).vectors.to_vector<float>() ==
        std::vector<float>{0, 2});
  CHECK_THROWS_WITH(data::read_word_vectors(write(folder / "v", "a 1 1e400\nb 1 1e400\n"), {.header = false}),
                    Contains("number 2 is none"));
}

TEST_CASE("word vectors go into the rows of the words that a model knows") {
  const data::WordVectors vectors{data::Vocabulary(Strings{"a", "b"}), tensor({{1., 2.}, {3., 4.}})};
  const data::Vocabulary known(Strings{"<unk>", "b", "z"});
  const Tensor weight = zeros({3, 2}, {.dtype = kFloat64}).requires_grad_();
  CHECK(vectors.copy_into(weight, known) == 1);
  CHECK(weight.to_vector<double>() == std::vector<double>{0, 0, 3, 4, 0, 0});
  CHECK(vectors.copy_into(weight, data::Vocabulary(Strings{"x", "y", "z"})) == 0);
  CHECK_THROWS_WITH(vectors.copy_into(zeros({3, 3}), known), Contains("expected a tensor of shape [3, 2], got [3, 3]"));
}

TEST_CASE("word vectors have neighbours") {
  const data::WordVectors vectors{data::Vocabulary({"king", "queen", "man", "woman", "far"}),
                                  tensor({{2., 1.}, {2., -1.}, {1., 2.}, {1., -2.}, {-1., 0.}})};
  const auto words = [](const std::vector<data::Neighbour>& found) {
    std::string list;
    for (const auto& [word, cosine] : found) list += word + " ";
    return list;
  };
  CHECK(words(vectors.nearest("king", 3)) == "man queen woman ");
  CHECK(vectors.nearest("king", 1)[0].cosine == Approx(4. / 5));
  CHECK(words(vectors.nearest(tensor({-3., 0.}), 1)) == "far ");
  CHECK(words(vectors.nearest("king", 100)) == "man queen woman far ");
  CHECK(vectors.nearest("king", 0).empty());
  CHECK(words(vectors.analogy("man", "woman", "king", 1)) == "queen ");
  CHECK_THROWS_WITH(vectors.nearest("prince", 1), "WordVectors: there is no vector for 'prince'");
  CHECK_THROWS_WITH(vectors.nearest(zeros({3}), 1), "WordVectors: a direction of shape [3] among vectors of 2");
}

TEST_CASE("word vectors are scored by analogies and similarities") {
  const data::WordVectors vectors{data::Vocabulary({"king", "queen", "man", "woman", "far"}),
                                  tensor({{2., 1.}, {2., -1.}, {1., 2.}, {1., -2.}, {-1., 0.}})};
  const std::vector<std::string> questions{": family", "man woman king queen", "Man Woman King far", "",
                                           "man woman king prince"};
  const data::AnalogyScore analogies = data::score_analogies(vectors, questions);
  CHECK(analogies.asked == 2);
  CHECK(analogies.right == 1);
  CHECK(analogies.skipped == 1);
  CHECK(analogies.accuracy() == 0.5);
  CHECK_THROWS_WITH(data::score_analogies(vectors, std::vector<std::string>{"a b c"}),
                    "score_analogies: 'a b c' is not four words");
  // Cosines 0.8, 0.6, 0, -0.89, given as 9, 9, 1, 3: ranks 3, 2, 1, 0 and 2.5, 2.5, 0, 1.
  const std::vector<std::string> pairs{"king\tman\t9", "king queen 9", "king woman 1", "king far 3", "king prince 5"};
  const data::SimilarityScore similarities = data::score_similarities(vectors, pairs);
  CHECK(similarities.pairs == 4);
  CHECK(similarities.skipped == 1);
  CHECK(similarities.correlation == Approx(3.5 / std::sqrt(5 * 4.5)));
  CHECK_THROWS_WITH(data::score_similarities(vectors, std::vector<std::string>{"king man nine"}),
                    "score_similarities: 'king man nine' is not two words and a number");
}

TEST_CASE("malformed word vectors are refused with the place and the reason") {
  const Folder folder;
  const auto check = [&](const std::string& bytes, const std::string& message, data::WordVectorOptions options = {}) {
    INFO(message);
    CHECK_THROWS_WITH(data::read_word_vectors(write(folder / "x", bytes), options), Contains("x:" + message));
  };
  check("a 1 2\nb 1\n", "2: expected a word and 2 numbers; number 1 is none");
  check("a 1 2\nb 1 x\n", "2: expected a word and 2 numbers; number 2 is none");
  check("a 1 2\n 1 2\n", "2: a vector without a word");
  check("word\n", "1: expected a word and 1 numbers; number 1 is none");
  check("2 2\na 1 2\n", "2: the file ends after 1 words, its first line says 2");
  check("2 1000000\na 1 2\n", "2: fewer than 1000000 numbers");
  check("a 1\n", "1: expected the numbers of words and of dimensions", {.header = true});
  check("x y\n", " byte 0: expected the numbers", {.format = kBinary});
  check("1 99999999999\n", " byte 0: expected the numbers", {.format = kBinary});
  check("1 1000000\na xxxx", " byte 10: vectors of 1000000 numbers, where at most 6 bytes can follow",
        {.format = kBinary});
  check("2 1\na xxxx\nb xx", " byte 15: ends where 2 more bytes", {.format = kBinary});
  check("2 1\na xxxx\nb", " byte 12: ends after 1 of 2 words", {.format = kBinary});
  check("1 1\n xxxx", " byte 5: a vector without a word", {.format = kBinary});
}

TEST_CASE("a line of word vectors with more numbers than the file's size is an Error, not a word with a number") {
  const Folder folder;
  const auto read = [&](const std::string& text) { return data::read_word_vectors(write(folder / "x", text)); };
  CHECK_THROWS_WITH(read("a 0.1\nb 0.3 0.4\n"), Contains("x:2: more than 1 numbers, as the first word has"));
  CHECK_THROWS_WITH(read("2 1\na 0.1 0.2\nb 0.3 0.4\n"), Contains("x:2: more than 1 numbers, as the first line gives"));
  CHECK_THROWS_WITH(read("a 0.1 0.2\nb 3e-1 0.4 0.5\n"), Contains("x:2: more than 2 numbers"));
  CHECK(read("95 0.1 0.2\nwindows 95 0.3 0.4\n. . . 0.5 0.6\n").words.tokens() == Strings{"95", "windows 95", ". . ."});

  // A line end within a word tells of vectors of another length.
  const auto binary = [&](const std::string& text) {
    return data::read_word_vectors(write(folder / "x", text), {.format = kBinary});
  };
  CHECK(binary("2 1\r\na \0\0\x80\x3f\r\nb \0\0\0\x40\r\n"s).words.tokens() == Strings{"a", "b"});
  CHECK_THROWS_WITH(binary("2 1\na \0\0\0\0\0\0\xf0\x3f\nb \0\0\0\0\0\0\0\x40\n"s),
                    Contains("word 1 has a line end in it: are the vectors 1 float32 numbers long?"));
}
