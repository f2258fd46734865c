// bench/padding.cpp in libtorch: sentences one by one, padded, and packed.
#include "bench/padding.h"

#include "bench/libtorch/tagger_model.h"

using namespace tagger_model;

namespace {

Tensor numbers(const std::vector<int64_t>& values) { return torch::tensor(values, torch::kLong); }

/// What all ways share.
struct Reader {
  Tagger model;
  Tagger::Optimizer optimizer{model};
  std::vector<int64_t> sizes;

  explicit Reader(const bench::PaddingData& data) : model(data.tagged.words, data.tagged.tags) {
    for (const bench::PaddedBatch& batch : data.batches) sizes.push_back(batch.size());
  }
  double update(size_t batch, const Tensor& loss) {
    optimizer.zero_grad();
    (loss / static_cast<double>(sizes[batch])).backward();
    optimizer.step();
    return loss.item<double>();
  }
};

struct Singly : Reader {
  std::vector<std::vector<Example>> batches;

  explicit Singly(const bench::PaddingData& data) : Reader(data) {
    for (const bench::PaddedBatch& batch : data.batches)
      batches.emplace_back(batch.sentences.begin(), batch.sentences.end());
  }
  double train(size_t batch) {
    std::vector<Tensor> losses;
    for (const Example& example : batches[batch]) losses.push_back(model.loss(example));
    return update(batch, torch::stack(losses).sum());
  }
  int64_t infer(size_t batch) const {
    torch::InferenceMode guard;
    int64_t total = 0;
    for (const Example& example : batches[batch]) total += model.first_tag(example);
    return total;
  }
};

/// All sentences of a batch as rows of one tensor, of which the first are the sentences' first words.
struct AtOnce : Reader {
  std::vector<Tensor> targets;  // of the batches: for each row its tag

  using Reader::Reader;
  virtual ~AtOnce() = default;
  virtual Tensor scores(size_t batch, bool train) const = 0;
  double train(size_t batch) {
    const auto options = F::CrossEntropyFuncOptions().ignore_index(bench::PaddedBatch::kNoTag).reduction(torch::kSum);
    return update(batch, F::cross_entropy(scores(batch, true), targets[batch], options));
  }
  int64_t infer(size_t batch) const {
    torch::InferenceMode guard;
    const Tensor best = scores(batch, false).argmax(1);
    const int64_t* tags = best.data_ptr<int64_t>();
    return std::accumulate(tags, tags + sizes[batch], int64_t(0));
  }
};

struct Padded final : AtOnce {
  std::vector<Tensor> words, turned;  // [longest · n]

  explicit Padded(const bench::PaddingData& data) : AtOnce(data) {
    for (const bench::PaddedBatch& batch : data.batches) {
      words.push_back(numbers(batch.words())), turned.push_back(numbers(batch.turned()));
      targets.push_back(numbers(batch.tags()));
    }
  }
  /// The second direction reads sentences that are turned around, each by itself.
  Tensor scores(size_t i, bool train) const override {
    const Tensor x = look_up(model.embedding, words[i]), zero = torch::zeros({1, sizes[i], Tagger::kH});
    const auto read = [&](const Tensor& rows, int direction) {
      const auto first = model.lstm.weights.begin() + 4 * direction;
      const auto result = torch::lstm(rows.view({-1, sizes[i], rows.size(1)}), {zero, zero},
                                      std::vector<Tensor>(first, first + 4), /*has_biases=*/true, /*num_layers=*/1,
                                      /*dropout=*/0, train, /*bidirectional=*/false, /*batch_first=*/false);
      return std::get<0>(result).flatten(0, 1);
    };
    const Tensor backwards = read(x.index_select(0, turned[i]), 1).index_select(0, turned[i]);
    return model.scores_of(torch::cat({read(x, 0), backwards}, 1));
  }
};

struct Packed final : AtOnce {
  std::vector<torch::nn::utils::rnn::PackedSequence> words;

  explicit Packed(const bench::PaddingData& data) : AtOnce(data) {
    const auto pack = [](const bench::PaddedBatch& batch, std::vector<int64_t> bench::Sentence::*member) {
      std::vector<Tensor> all;
      for (const bench::Sentence& sentence : batch.sentences) all.push_back(numbers(sentence.*member));
      return torch::nn::utils::rnn::pack_sequence(all, /*enforce_sorted=*/false);
    };
    for (const bench::PaddedBatch& batch : data.batches) {
      words.push_back(pack(batch, &bench::Sentence::words));
      targets.push_back(pack(batch, &bench::Sentence::tags).data());
    }
  }
  Tensor scores(size_t i, bool train) const override {
    const Tensor x = look_up(model.embedding, words[i].data()), zero = torch::zeros({2, sizes[i], Tagger::kH});
    const auto result = torch::lstm(x, words[i].batch_sizes(), {zero, zero}, model.lstm.weights, /*has_biases=*/true,
                                    /*num_layers=*/1, /*dropout=*/0, train, /*bidirectional=*/true);
    return model.scores_of(std::get<0>(result));
  }
};

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  TorchReport report(options);
  bench::measure_padding<Singly>(report, options, "one");
  bench::measure_padding<Padded>(report, options, "padded");
  bench::measure_padding<Padded>(report, options, "bucketed");
  bench::measure_padding<Packed>(report, options, "packed");
  return report.good() ? 0 : 1;
}
