#include "reel/data/word_vectors.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lib/data/parse.h"
#include "lib/io/file.h"
#include "lib/io/source.h"
#include "reel/autograd.h"
#include "reel/data/text.h"
#include "reel/ops/index.h"

// Word vectors in the text format of GloVe and fastText (WORD NUMBER NUMBER …, fastText with a header line COUNT SIZE)
// and the binary format of word2vec (the header line, then WORD, a space and SIZE little-endian float32 for each).
namespace reel::data {
namespace {

// Collects words and vectors. It grows with what is read: a header's counts are not trusted with an allocation.
class Builder {
 public:
  explicit Builder(const WordVectorOptions& options) : options_(options) {}

  bool full() const { return options_.max_words && words_.size() >= *options_.max_words; }
  bool wants(std::string_view word) const { return (!options_.keep || options_.keep(word)) && !words_.contains(word); }
  void add(std::string_view word, const std::vector<float>& vector) {
    words_.add(word);
    values_.insert(values_.end(), vector.begin(), vector.end());
  }
  WordVectors finish(int64_t size) {
    auto values = std::make_shared<std::vector<float>>(std::move(values_));
    const Shape shape{words_.size(), size};
    return {std::move(words_), from_blob(values->data(), shape, [values] {})};
  }

 private:
  const WordVectorOptions& options_;
  Vocabulary words_;
  std::vector<float> values_;
};

constexpr int64_t kMaxVectorSize = 1 << 24;  // that a header may state

struct Header {
  int64_t words, size;
};

std::optional<Header> parse_header(std::string_view line) {
  const std::vector<std::string> fields = split_words(line, " ");
  Header header;
  if (fields.size() != 2 || !parse_number(fields[0], header.words) || !parse_number(fields[1], header.size) ||
      header.words < 0 || header.size <= 0 || header.size > kMaxVectorSize)
    return {};
  return header;
}

// Parses the last number of the line and removes it; false if there is none, or one out of float32's range. Numbers are
// taken from the end, since words may contain spaces (GloVe's 840B file has some).
bool take_number(std::string_view& line, float& value) {
  const size_t space = line.find_last_of(' ');
  double wide;
  if (space == std::string_view::npos || !parse_number(line.substr(space + 1), wide)) return false;
  value = static_cast<float>(wide);
  if (std::isinf(value) && !std::isinf(wide)) return false;
  line.remove_suffix(line.size() - space);
  return true;
}

// Returns whether a word with spaces, which some files have, ends with a number of a vector rather than with a year or
// the like.
bool ends_with_fraction(std::string_view word) {
  const size_t space = word.find_last_of(' ');
  if (space == std::string_view::npos) return false;
  const std::string_view last = word.substr(space + 1);
  double unused;
  return last.find_first_of(".eE") != std::string_view::npos && parse_number(last, unused);
}

std::string_view without_trailing_space(std::string_view line) {
  while (line.ends_with(' ')) line.remove_suffix(1);
  return line;
}

WordVectors read_text(io::Source& source, const WordVectorOptions& options) {
  Builder builder(options);
  std::string line;
  std::optional<Header> header;
  int64_t size = 0, words = 0;
  std::vector<float> vector;
  while (!builder.full() && source.read_line(line)) {
    std::string_view rest = without_trailing_space(line);
    if (source.line_number() == 1 && options.header != false) {
      header = parse_header(rest);
      if (options.header == true && !header) source.fail_line("expected the numbers of words and of dimensions");
      if (header) {
        size = header->size;
        continue;
      }
    }
    if (rest.empty()) continue;
    if (size == 0)  // without a header, the first line gives the size: all but its first word are numbers
      size = std::max<int64_t>(1, std::count(rest.begin(), rest.end(), ' '));
    if (size > static_cast<int64_t>(rest.size())) source.fail_line("fewer than ", size, " numbers");
    vector.resize(size);
    for (int64_t i = size; i-- > 0;)
      if (!take_number(rest, vector[i]))
        source.fail_line("expected a word and ", size, " numbers; number ", i + 1,
                         " is none, or too large for float32");
    if (rest.empty()) source.fail_line("a vector without a word");
    // A line that is too long would give its word a number, and a first line that is too short all of them.
    if (ends_with_fraction(rest))
      source.fail_line("more than ", size, " numbers, as ", header ? "the first line gives" : "the first word has",
                       ", behind the word");
    ++words;
    if (builder.wants(rest)) builder.add(rest, vector);
  }
  if (header && !builder.full() && words != header->words)
    source.fail_line("the file ends after ", words, " words, its first line says ", header->words);
  return builder.finish(size);
}

WordVectors read_binary(io::Source& source, const WordVectorOptions& options) {
  std::string line;
  source.read_line(line);
  const auto header = parse_header(without_trailing_space(line));
  if (!header) source.fail_at(0, "expected the numbers of words and of dimensions");
  if (header->size > source.max_remaining() / 4 && header->words > 0)
    source.fail("vectors of ", header->size, " numbers, where at most ", source.max_remaining(), " bytes can follow");
  Builder builder(options);
  std::string word;
  std::vector<float> vector(header->words > 0 ? header->size : 0);
  for (int64_t i = 0; i < header->words && !builder.full(); ++i) {
    word.clear();
    if (!source.read_until(' ', word)) source.fail("ends after ", i, " of ", header->words, " words");
    // word2vec ends vectors with a LF, others with nothing, or with CR LF.
    word.erase(0, word.starts_with('\n') ? 1 : word.starts_with("\r\n") ? 2 : 0);
    if (word.empty()) source.fail("a vector without a word");
    if (word.find_first_of("\r\n") != std::string::npos)
      source.fail("word ", i, " has a line end in it: are the vectors ", header->size, " float32 numbers long?");
    source.read_exactly(vector.data(), header->size * 4);
    if (builder.wants(word)) builder.add(word, vector);
  }
  if (!builder.full()) {
    char c;
    while (source.read(&c, 1))
      if (c != '\n' && c != '\r' && c != ' ')
        source.fail_at(source.position() - 1, "more follows the last of ", header->words, " vectors of ", header->size,
                       " float32 numbers, of which the first line speaks");
  }
  return builder.finish(header->size);
}

}  // namespace

WordVectors read_word_vectors(const std::filesystem::path& path, const WordVectorOptions& options) {
  io::Source source(path);
  return options.format == WordVectorFormat::kText ? read_text(source, options) : read_binary(source, options);
}

int64_t WordVectors::copy_into(Tensor weight, const Vocabulary& vocabulary) const {
  REEL_CHECK(weight.defined() && weight.shape() == (Shape{vocabulary.size(), vectors.size(1)}),
             "WordVectors::copy_into: expected a tensor of shape ", Shape{vocabulary.size(), vectors.size(1)}, ", got ",
             weight.defined() ? weight.shape().to_string() : "an undefined one");
  std::vector<int64_t> to, from_rows;
  for (int64_t id = 0; id < vocabulary.size(); ++id)
    if (const auto row = words.find(vocabulary.token(id))) {
      to.push_back(id);
      from_rows.push_back(*row);
    }
  if (to.empty()) return 0;
  const NoGrad guard;
  const Tensor found = index_select(vectors, 0, tensor(from_rows, {.device = vectors.device()}));
  weight.index_put_({tensor(to, {.device = weight.device()})}, found.to(weight.dtype()).to(weight.device()));
  return static_cast<int64_t>(to.size());
}

void write_word_vectors(const std::filesystem::path& path, const Vocabulary& words, const Tensor& vectors,
                        WordVectorFormat format) {
  REEL_CHECK(vectors.defined() && vectors.dim() == 2 && vectors.size(0) == words.size(),
             "write_word_vectors: expected a vector for each of ", words.size(), " words, got shape ",
             vectors.defined() ? vectors.shape().to_string() : "of an undefined tensor");
  const std::vector<float> values = vectors.detach().to(kCPU).to_vector<float>();
  const int64_t size = vectors.size(1);
  std::string text = std::to_string(words.size()) + " " + std::to_string(size) + "\n";
  io::AtomicFile file(path);
  for (int64_t i = 0; i < words.size(); ++i) {
    const std::string& word = words.token(i);
    REEL_CHECK(!word.empty() && word.find_first_of(" \n\r") == std::string::npos, "write_word_vectors: '", word,
               "' cannot be written, words have no spaces");
    text += word;
    if (format == WordVectorFormat::kWord2VecBinary) {
      text += ' ';
      text.append(reinterpret_cast<const char*>(values.data() + i * size), static_cast<size_t>(size) * sizeof(float));
    } else {
      char number[32];
      for (int64_t j = 0; j < size; ++j) {
        const auto end = std::to_chars(number, std::end(number), values[i * size + j]).ptr;
        (text += ' ').append(number, end);
      }
    }
    text += '\n';
    if (text.size() > (1 << 20) || i + 1 == words.size()) {
      file.write(text.data(), static_cast<int64_t>(text.size()));
      text.clear();
    }
  }
  file.write(text.data(), static_cast<int64_t>(text.size()));  // of no words
  file.commit();
}

}  // namespace reel::data
