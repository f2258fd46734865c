// A BiLSTM tagger and a BiLSTM-CRF, one sentence at a time or 32 at once, and none padded.
#include <algorithm>
#include <span>

#include "bench/corpus.h"
#include "bench/reel.h"
#include "bench/tagger_model.h"

using namespace reel;
using tagger_model::BiLSTM;
using tagger_model::Tagger;

namespace {

struct CrfTagger : nn::Module {
  nn::Embedding embedding;
  BiLSTM lstm{*this, bench::ner::kEmbedding, bench::ner::kHidden};
  nn::Linear out;
  nn::CRF crf;

  CrfTagger(int words, int tags)
      : embedding(*this, "embedding", words, bench::ner::kEmbedding, {.sparse = true}),
        out(*this, "out", 2 * bench::ner::kHidden, tags),
        crf(*this, "crf", tags) {
    fill(embedding.weight, 1, 0.1f), fill(out.weight, 30, 0.1f), zero({out.bias});
    fill(crf.transitions, 31, 0.1f), fill(crf.start_transitions, 32, 0.1f), fill(crf.end_transitions, 33, 0.1f);
  }
  Tensor emissions(const Tensor& words) const { return out(lstm(embedding(words)).output); }
  Tensor loss(const Tensor& words, const Tensor& tags) const { return -crf(emissions(words), tags); }
  Tensor decode(const Tensor& words) const { return crf.decode(emissions(words)).tags; }
};

struct Example {
  Tensor words, tags;
  explicit Example(const bench::Sentence& s) : words(tensor(s.words)), tags(tensor(s.tags)) {}
};

/// One step for every sentence; returns the sum of the losses.
template <class Model>
double train(const Model& model, optim::Optimizer& optimizer, const std::vector<Example>& examples) {
  double total = 0;
  for (const Example& example : examples) {
    const Tensor loss = model.loss(example.words, example.tags);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    total += loss.item<double>();
  }
  return total;
}

/// f for each of the examples, 32 of them at a time, in one batching::map each.
template <class F>
void for_each_batch(const std::vector<Example>& examples, F f) {
  for (size_t begin = 0; begin < examples.size(); begin += bench::tagger::kBatch)
    f(std::span(examples).subspan(begin, std::min(bench::tagger::kBatch, examples.size() - begin)));
}

/// One step for every 32 sentences, which are read at once; returns the sum of the losses.
template <class Model>
double train_batched(const Model& model, optim::Optimizer& optimizer, const std::vector<Example>& examples) {
  double total = 0;
  for_each_batch(examples, [&](std::span<const Example> some) {
    const auto loss_of = [&](const Example& example) { return model.loss(example.words, example.tags); };
    const Tensor loss = sum(stack(batching::map(some, loss_of)));
    optimizer.zero_grad();
    (loss / static_cast<double>(some.size())).backward();
    optimizer.step();
    total += loss.item<double>();
  });
  return total;
}

/// Returns the sum of the sentences' first tags, so that all is computed.
template <class Model>
int64_t infer(const Model& model, const std::vector<Example>& examples) {
  NoGrad guard;
  int64_t total = 0;
  for (const Example& example : examples) total += model.decode(example.words).to(kCPU).template data<int64_t>()[0];
  return total;
}

template <class Model>
int64_t infer_batched(const Model& model, const std::vector<Example>& examples) {
  NoGrad guard;
  int64_t total = 0;
  for_each_batch(examples, [&](std::span<const Example> some) {
    const auto first = [&](const Example& example) {
      return model.decode(example.words).to(kCPU).template data<int64_t>()[0];
    };
    for (const int64_t tag : batching::map(some, first)) total += tag;
  });
  return total;
}

template <class Model, class Optimizer>
void run(ReelReport& report, const bench::Options& options, const std::string& name,
         const std::vector<std::string>& files, double learning_rate, double expected_loss) {
  const auto load = [&] { return bench::load_tagged(options, files); };
  for (const bool batched : {false, true}) {
    const std::string workload = name + ".train" + (batched ? ".batched" : "");
    report.run(workload, [&] {
      const bench::Tagged data = load();
      const std::vector<Example> examples(data.sentences.begin(), data.sentences.end());
      const Model model(data.words, data.tags);
      Optimizer optimizer(model.parameters(), {.lr = learning_rate});
      const auto pass = [&] {
        return batched ? train_batched(model, optimizer, examples) : train(model, optimizer, examples);
      };
      const double loss = pass() / static_cast<double>(data.tokens());
      const std::string more =
          batched ? bench::field("first_pass_loss", loss) : bench::check_loss(data, loss, expected_loss);
      report.rate(workload, bench::measure(pass, options.secs, 0, 3), static_cast<double>(examples.size()),
                  "sentences/s", more);
    });
  }
  for (const bool batched : {false, true}) {
    const std::string workload = name + ".infer" + (batched ? ".batched" : "");
    report.run(workload, [&] {
      const bench::Tagged data = load();
      const std::vector<Example> examples(data.sentences.begin(), data.sentences.end());
      const Model model(data.words, data.tags);
      const auto pass = [&] { batched ? infer_batched(model, examples) : infer(model, examples); };
      report.rate(workload, bench::measure(pass, options.secs, 1, 3), static_cast<double>(examples.size()),
                  "sentences/s");
    });
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  ReelReport report(options);
  run<Tagger, optim::Adam>(report, options, "tag", bench::tagger::kFiles, bench::tagger::kLearningRate,
                           bench::tagger::kFirstPassLoss);
  run<CrfTagger, optim::SGD>(report, options, "ner", bench::ner::kFiles, bench::ner::kLearningRate,
                             bench::ner::kFirstPassLoss);
  return report.good() ? 0 : 1;
}
