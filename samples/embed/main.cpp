// A pretrained encoder of the BERT family turns sentences into vectors; finds the sentences nearest to others.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "reel/reel.h"
#include "reel/tensorboard.h"
#include "samples/common.h"

using namespace reel;

namespace {

const std::map<std::string, nn::BertPooling> kPoolings{
    {"mean", nn::BertPooling::kMean}, {"cls", nn::BertPooling::kCls}, {"pooler", nn::BertPooling::kPooler}};

struct Options {
  std::string model, data, out, log, device = "cpu";
  nn::BertPooling pooling = nn::BertPooling::kMean;
  bool ids = false, normalize = false, cased = false;
  int batch = 32, max_length = 0, nearest = 1, threads = 0;
  uint64_t seed = 1;
};

/// Fills the options; a number is the program's exit status.
std::optional<int> parse(int argc, char** argv, Options& o) {
  CLI::App app(
      "Vectors of sentences by a pretrained encoder, and each sentence's nearest one. Without --model it is a small "
      "BERT that knows nothing but the words of made-up sentences.");
  app.option_defaults()->always_capture_default();
  app.add_option("--model", o.model, "folder with config.json, model.safetensors and vocab.txt")
      ->check(CLI::ExistingDirectory);
  app.add_option("--data", o.data, "text file, a sentence a line; - for standard input");
  app.add_flag("--ids", o.ids, "the lines are numbers of word pieces, between spaces, with those of [CLS] and [SEP]");
  app.add_option("--out", o.out, "write the vectors to this .npy file");
  app.add_option("--log", o.log, "write the vectors to this folder, for the projector of tensorboard --logdir");
  app.add_option("--pooling", o.pooling, "mean of all vectors, that of cls, or what the pooler makes of that")
      ->transform(CLI::CheckedTransformer(kPoolings));
  app.add_flag("--normalize", o.normalize, "make all vectors of length 1");
  app.add_flag("--cased", o.cased, "capitals matter, unless a tokenizer_config.json says otherwise");
  app.add_option("--max-length", o.max_length, "word pieces of a sentence, the rest is cut off; 0: all the model takes")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--nearest", o.nearest, "print for so many sentences which other one is nearest")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--batch", o.batch, "sentences computed together")->check(CLI::Range(1, 1000000));
  app.add_option("--threads", o.threads, "of a large op; 0: all cores")->check(CLI::NonNegativeNumber);
  app.add_option("--device", o.device, "cpu, cuda or cuda:N");
  app.add_option("--seed", o.seed, "of the made-up sentences");
  return parse_arguments(app, argc, argv);
}

/// Sentences of few words, each followed by one that says it in another order.
std::vector<std::string> made_up_sentences(uint64_t seed) {
  std::minstd_rand random(static_cast<std::minstd_rand::result_type>(seed + 1));
  std::vector<std::string> sentences;
  for (int i = 0; i < 40; ++i) {
    std::vector<std::string> words;
    for (int left = 3 + static_cast<int>(random() % 9); left > 0; --left)
      words.push_back("word" + std::to_string(random() % 300));
    for (int twin = 0; twin < 2; ++twin) {
      std::string text;
      for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
      sentences.push_back(text + (twin ? "!" : "."));
      std::reverse(words.begin(), words.end());
    }
  }
  return sentences;
}

struct Encoder {
  nn::Bert bert;
  std::optional<data::WordPiece> words;
};
Encoder load_encoder(const Options& o) {
  if (o.model.empty()) {
    std::vector<std::string> pieces{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "!", "word"};
    for (int i = 0; i < 300; ++i) pieces.push_back("##" + std::to_string(i));
    data::WordPiece words{data::Vocabulary(pieces)};
    manual_seed(o.seed);
    nn::Bert bert({.vocab_size = words.vocabulary().size(),
                   .hidden_size = 64,
                   .num_hidden_layers = 2,
                   .num_attention_heads = 4,
                   .intermediate_size = 128,
                   .max_position_embeddings = 64});
    bert.eval();
    return {std::move(bert), std::move(words)};
  }
  Encoder encoder{nn::Bert::load(o.model), {}};
  if (!o.ids) {
    encoder.words = data::WordPiece::load(o.model, {.lower_case = !o.cased});
    REEL_CHECK(encoder.words->vocabulary().size() <= encoder.bert.config.vocab_size, o.model, ": vocab.txt has ",
               encoder.words->vocabulary().size(), " pieces, the model knows ", encoder.bert.config.vocab_size);
  }
  return encoder;
}

std::vector<std::string> read_sentences(const Options& o) {
  if (o.data.empty()) return made_up_sentences(o.seed);
  if (o.data != "-") return data::read_lines(o.data);
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) lines.push_back(line);
  return lines;
}

int64_t number_of(const std::string& word) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  REEL_CHECK(error == std::errc() && end == word.data() + word.size(), "'", word, "' is no number of a word piece");
  return number;
}

/// The word pieces of each sentence.
std::vector<std::vector<int64_t>> encode(const Encoder& encoder, const std::vector<std::string>& sentences,
                                         const Options& o) {
  const int64_t most = encoder.bert.config.max_position_embeddings;
  const int64_t length = o.max_length ? std::min<int64_t>(o.max_length, most) : most;
  std::vector<std::vector<int64_t>> all;
  for (const std::string& sentence : sentences) try {
      if (o.ids) {
        std::vector<int64_t> ids;
        for (const std::string& word : data::split_words(sentence)) ids.push_back(number_of(word));
        REEL_CHECK(!ids.empty(), "no word pieces");
        all.push_back(std::move(ids));
      } else {
        all.push_back(encoder.words->encode(sentence, length));
      }
    } catch (const std::exception& error) {
      reel::detail::fail("line ", all.size() + 1, ": ", error.what());
    }
  return all;
}

/// A vector for each sentence, [n, size].
Tensor embed(const nn::Bert& bert, const std::vector<std::vector<int64_t>>& sentences, const Options& o) {
  NoGrad guard;
  const auto n = static_cast<int64_t>(sentences.size());
  const Device device = Device::from_string(o.device);
  const Tensor vectors = zeros({n, bert.config.hidden_size});
  for (int64_t first = 0; first < n; first += o.batch) {
    std::vector<int64_t> ids, lengths;
    const int64_t last = std::min(first + o.batch, n);
    for (int64_t i = first; i < last; ++i) {
      const std::vector<int64_t>& one = sentences[static_cast<size_t>(i)];
      ids.insert(ids.end(), one.begin(), one.end()), lengths.push_back(static_cast<int64_t>(one.size()));
    }
    const Tensor found = bert.embed({tensor(ids, {.device = device}), Lengths::of(lengths)}, o.pooling);
    vectors.narrow(0, first, last - first).copy_(o.normalize ? normalize(found) : found);
  }
  return vectors;
}

void run(const Options& o) {
  if (o.threads) set_num_threads(o.threads);
  Encoder encoder = load_encoder(o);
  encoder.bert.to(Device::from_string(o.device));
  const std::vector<std::string> sentences = read_sentences(o);
  REEL_CHECK(!sentences.empty(), "no sentences");
  const auto pieces = encode(encoder, sentences, o);
  const auto total = std::accumulate(pieces.begin(), pieces.end(), size_t{0},
                                     [](size_t sum, const auto& ids) { return sum + ids.size(); });
  const auto start = std::chrono::steady_clock::now();
  const Tensor vectors = embed(encoder.bert, pieces, o);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("%zu sentences, %zu word pieces, vectors of %lld numbers\n", sentences.size(), total,
              static_cast<long long>(vectors.size(1)));
  std::fprintf(stderr, "%.2f s, %.0f word pieces/s\n", took.count(), static_cast<double>(total) / took.count());
  if (!o.out.empty()) io::save_npy(vectors, o.out);
  if (!o.log.empty()) {
    std::vector<std::string> labels = sentences;
    for (std::string& label : labels)
      std::replace_if(
          label.begin(), label.end(), [](char c) { return c == '\t' || c == '\r'; }, ' ');
    tensorboard::SummaryWriter(o.log).add_embedding(vectors, labels, "sentences");
  }

  const Tensor units = normalize(vectors);
  const auto nearest = [&](int64_t i) {
    const Tensor cosines = mv(units, units[i]);
    cosines[i].fill_(-2);
    return std::pair(argmax(cosines).item<int64_t>(), max(cosines).item<double>());
  };
  for (int64_t i = 0; i < std::min<int64_t>(o.nearest, vectors.size(0)) && vectors.size(0) > 1; ++i) {
    const auto [other, cosine] = nearest(i);
    std::printf("%s\n  %.3f  %s\n", sentences[static_cast<size_t>(i)].c_str(), cosine,
                sentences[static_cast<size_t>(other)].c_str());
  }
  if (!o.data.empty()) return;
  int64_t right = 0;
  for (int64_t i = 0; i < vectors.size(0); ++i) right += nearest(i).first == (i ^ 1);
  std::printf("%lld of %lld made-up sentences are nearest to the one with the same words\n",
              static_cast<long long>(right), static_cast<long long>(vectors.size(0)));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = parse(argc, argv, options)) return *status;
  return status_of("embed", [&] { run(options); });
}
