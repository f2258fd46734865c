// The taggers of bench/tagger.cpp in libtorch, with its own LSTM over the whole sentence, which is the fastest of its
// ways.
#include "bench/corpus.h"
#include "bench/libtorch/tagger_model.h"

using torch::Tensor;
namespace F = torch::nn::functional;
using namespace tagger_model;

namespace {

struct CrfTagger {
  static constexpr int kE = bench::ner::kEmbedding, kH = bench::ner::kHidden;
  Tensor embedding, out, out_bias, transitions, start, end;
  BiLSTM lstm{kE, kH};

  CrfTagger(int words, int tags)
      : embedding(filled({words, kE}, 1, 0.1f)),
        out(filled({tags, 2 * kH}, 30, 0.1f)),
        out_bias(zeros(tags)),
        transitions(filled({tags, tags}, 31, 0.1f)),  // [from, to]
        start(filled({tags}, 32, 0.1f)),
        end(filled({tags}, 33, 0.1f)) {}

  Tensor emissions(const Example& example, bool train) const {
    return F::linear(lstm(look_up(embedding, example.words), train), out, out_bias);
  }
  /// -log p(tags | words), by the forward algorithm.
  Tensor loss(const Example& example) const {
    const Tensor scores = emissions(example, true), &tags = example.tags;
    const std::vector<Tensor> steps = scores.unbind(0);
    Tensor alpha = start + steps[0];
    for (size_t t = 1; t < steps.size(); ++t) alpha = torch::logsumexp(alpha.unsqueeze(1) + transitions, 0) + steps[t];
    const int64_t length = static_cast<int64_t>(steps.size());
    Tensor gold =
        scores.gather(1, tags.unsqueeze(1)).sum() + start[example.tag_ids.front()] + end[example.tag_ids.back()];
    if (length > 1)
      gold = gold + transitions.index({tags.narrow(0, 0, length - 1), tags.narrow(0, 1, length - 1)}).sum();
    return torch::logsumexp(alpha + end, 0) - gold;
  }
  /// Viterbi's algorithm in plain loops over what libtorch emits, as that is faster than in tensors.
  int64_t first_tag(const Example& example) const {
    const Tensor scores = emissions(example, false);
    const int length = static_cast<int>(scores.size(0)), n = static_cast<int>(scores.size(1));
    const float *emitted = scores.data_ptr<float>(), *step = transitions.data_ptr<float>();
    const float *first = start.data_ptr<float>(), *last = end.data_ptr<float>();
    std::vector<float> best(n), next(n);
    std::vector<int> from(length * n);
    for (int j = 0; j < n; ++j) best[j] = first[j] + emitted[j];
    for (int t = 1; t < length; ++t) {
      for (int j = 0; j < n; ++j) {
        int i = 0;
        for (int k = 1; k < n; ++k)
          if (best[k] + step[k * n + j] > best[i] + step[i * n + j]) i = k;
        next[j] = best[i] + step[i * n + j] + emitted[t * n + j];
        from[t * n + j] = i;
      }
      best.swap(next);
    }
    int tag = 0;
    for (int j = 1; j < n; ++j)
      if (best[j] + last[j] > best[tag] + last[tag]) tag = j;
    for (int t = length - 1; t > 0; --t) tag = from[t * n + tag];
    return tag;
  }

  struct Optimizer : torch::optim::SGD {
    Optimizer(const CrfTagger& m) : SGD(parameters(m), torch::optim::SGDOptions(bench::ner::kLearningRate)) {}
    static std::vector<Tensor> parameters(const CrfTagger& m) {
      std::vector<Tensor> all = m.lstm.weights;
      all.insert(all.end(), {m.embedding, m.out, m.out_bias, m.transitions, m.start, m.end});
      return all;
    }
  };
};

template <class Model>
double train(const Model& model, typename Model::Optimizer& optimizer, const std::vector<Example>& examples) {
  double total = 0;
  for (const Example& example : examples) {
    optimizer.zero_grad();
    const Tensor loss = model.loss(example);
    loss.backward();
    optimizer.step();
    total += loss.item<double>();
  }
  return total;
}

template <class Model>
int64_t infer(const Model& model, const std::vector<Example>& examples) {
  torch::InferenceMode guard;
  int64_t total = 0;
  for (const Example& example : examples) total += model.first_tag(example);
  return total;
}

template <class Model>
void run(TorchReport& report, const bench::Options& options, const std::string& name,
         const std::vector<std::string>& files, double expected_loss) {
  const auto with_model = [&](const std::string& workload, const auto& f) {
    report.run(workload, [&] {
      const bench::Tagged data = bench::load_tagged(options, files);
      f(data, Model(data.words, data.tags), std::vector<Example>(data.sentences.begin(), data.sentences.end()));
    });
  };
  with_model(name + ".train", [&](const auto& data, const Model& model, const auto& examples) {
    typename Model::Optimizer optimizer(model);
    const double loss = train(model, optimizer, examples) / static_cast<double>(data.tokens());
    const std::string more = bench::check_loss(data, loss, expected_loss);
    const auto pass = [&] { train(model, optimizer, examples); };
    report.rate(name + ".train", bench::measure(pass, options.secs, 0, 3), examples.size(), "sentences/s", more);
  });
  with_model(name + ".infer", [&](const auto&, const Model& model, const auto& examples) {
    const auto pass = [&] { infer(model, examples); };
    report.rate(name + ".infer", bench::measure(pass, options.secs, 1, 3), examples.size(), "sentences/s");
  });
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  TorchReport report(options);
  run<Tagger>(report, options, "tag", bench::tagger::kFiles, bench::tagger::kFirstPassLoss);
  run<CrfTagger>(report, options, "ner", bench::ner::kFiles, bench::ner::kFirstPassLoss);
  return report.good() ? 0 : 1;
}
