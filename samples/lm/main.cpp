// A language model of letters or words: an LSTM or a transformer that learns to continue a text, and writes its own.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataset.h"
#include "model.h"
#include "reel/reel.h"
#include "samples/checkpoints.h"
#include "samples/common.h"
#include "samples/log.h"
#include "samples/progress.h"

using namespace reel;

namespace {

struct Options : CommonOptions, LanguageModelOptions, TokenOptions {
  int64_t steps = 64, updates = 0, every = 500, dev_tokens = 100000;
  double clip = 1;
  int64_t generate = 200;
  double temperature = 0.8;
  std::string prompt;
};

/// Defaults depend on other arguments, and --help shows those that hold.
void set_defaults(int argc, char** argv, Options& o) {
  const auto given = [&](std::string_view name) {
    return std::any_of(argv + 1, argv + argc,
                       [&](std::string_view a) { return a == name || (a.starts_with(name) && a[name.size()] == '='); });
  };
  o.epochs = 1, o.batch = 32, o.lr = 4e-3;
  if (given("--words")) o.embedding = o.hidden = 256, o.min_count = 5, o.cutoffs = {2000, 10000}, o.dropout = 0.2;
  if (given("--transformer")) o.hidden = 256, o.layers = 4, o.steps = o.context, o.lr = 1e-3, o.batch = 16;
  if (!given("--data")) o.embedding = 16, o.hidden = 64, o.layers = 1, o.epochs = 4, o.lr = 1e-2, o.dropout = 0;
}

/// Fills the options; a number is the program's exit status.
std::optional<int> parse(int argc, char** argv, Options& o) {
  set_defaults(argc, argv, o);
  CLI::App app(
      "Trains a language model on a text: --data FILE, plain or gzip; without it on sentences of a made-up language. "
      "The last tenth of the text is held out, half of it to choose the best model by and half for the score. The "
      "defaults shown depend on --data, --words and --transformer.");
  add_common_options(app, o, "text");
  app.get_option("--batch")->description("parts of the text that are read side by side");
  app.add_option("--data", o.data, "text file");
  app.add_flag("--words", o.words, "tokens are words between spaces, not letters");
  app.add_option("--min-count", o.min_count, "rarer tokens become <unk>")->check(CLI::Range(1, 1000000));

  const std::string model = "Model", training = "Training", text = "Generated text";
  const auto size = CLI::Range(1, 1000000);
  app.add_flag("--transformer", o.transformer, "a transformer instead of an LSTM")->group(model);
  app.add_option("--embedding", o.embedding, "numbers in a token's vector, of an LSTM")->group(model)->check(size);
  app.add_option("--hidden", o.hidden, "numbers in a state")->group(model)->check(size);
  app.add_option("--layers", o.layers, "layers of the LSTM or transformer")->group(model)->check(CLI::Range(1, 1000));
  app.add_option("--heads", o.heads, "of a transformer")->group(model)->check(size);
  app.add_option("--context", o.context, "tokens that a transformer sees")->group(model)->check(CLI::Range(2, 1000000));
  app.add_option("--cutoffs", o.cutoffs, "tokens by frequency, for an adaptive softmax; 0: a plain one")->group(model);

  app.add_option("--steps", o.steps, "tokens through which gradients go back")->group(training)->check(size);
  app.add_option("--lr", o.lr, "Adam's largest learning rate; it grows at first, and falls to 0")->group(training);
  app.add_option("--clip", o.clip, "largest norm of the gradient")->group(training)->check(CLI::PositiveNumber);
  app.add_option("--dropout", o.dropout, "of inputs and outputs of layers")
      ->group(training)
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--recurrent-dropout", o.recurrent_dropout, "of the LSTM's state, the same for all steps of a piece")
      ->group(training)
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--updates", o.updates, "stop after so many, instead of after --epochs")->group(training);
  app.add_option("--every", o.every, "updates between two reports")->group(training)->check(size);
  app.add_option("--dev-tokens", o.dev_tokens, "a report scores at most so many")->group(training)->check(size);

  app.add_option("--generate", o.generate, "write so many tokens at the end")->group(text);
  app.add_option("--temperature", o.temperature, "below 1 likely tokens become likelier; 0: always the likeliest")
      ->group(text)
      ->check(CLI::NonNegativeNumber);
  app.add_option("--prompt", o.prompt, "the text that is continued")->group(text);
  return parse_arguments(app, argc, argv);
}

// ---- the file of a saved model holds its sizes and its vocabulary ---------------------------------------------------

/// visit(name, number) for each.
void visit_sizes(Options& o, const auto& visit) {
  visit("words", o.words), visit("transformer", o.transformer), visit("embedding", o.embedding);
  visit("hidden", o.hidden), visit("layers", o.layers), visit("heads", o.heads), visit("context", o.context);
}

io::Metadata metadata_of(Options o, const data::Vocabulary& tokens) {
  io::Metadata metadata{{"vocabulary", tokens.to_string()}};
  visit_sizes(o, [&](const char* name, auto number) { metadata[name] = std::to_string(number); });
  for (const int64_t cutoff : o.cutoffs) metadata["cutoffs"] += std::to_string(cutoff) + " ";
  return metadata;
}

int64_t number_in(const Options& o, const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  REEL_CHECK(error == std::errc() && end == text.data() + text.size(), o.load, ": \"", text, "\" is not a size");
  return number;
}

data::Vocabulary read_metadata(Options& o, io::Metadata metadata) {
  REEL_CHECK(metadata.contains("vocabulary") && metadata.contains("context"), o.load,
             ": this is no model of this program");
  visit_sizes(o, [&]<class T>(const char* name, T& number) { number = static_cast<T>(number_in(o, metadata[name])); });
  o.cutoffs.clear();
  for (const std::string& cutoff : data::split_words(metadata["cutoffs"])) o.cutoffs.push_back(number_in(o, cutoff));
  return data::Vocabulary::from_string(metadata["vocabulary"]);
}

// ---- training -------------------------------------------------------------------------------------------------------

/// The mean of -log p of a text's tokens.
double evaluate(LanguageModel& model, const Tensor& ids, const Options& o) {
  NoGrad guard;
  model.eval();
  // Few and long parts: a part's first tokens are predicted from nothing.
  const data::BpttDataset pieces(ids, {.batch_size = std::clamp<int64_t>(ids.numel() / 5000, 1, 64),
                                       .steps = o.transformer ? o.context / 2 : o.steps});
  const Device device = model.embedding.weight.device();
  Memory memory;
  double loss = 0;
  for (int64_t i = 0; i < pieces.size(); ++i) {
    const auto [x, y] = pieces.get(i);
    const Tensor features = model.forward(x.to(device), memory);
    loss += model.loss(features, y.to(device)).item<double>() * static_cast<double>(y.numel());
  }
  return loss / static_cast<double>(pieces.num_predictions());
}

std::string to_string(double loss, const Options& o) {
  char text[64];
  const double bits = loss / std::numbers::ln2;
  if (o.words)
    std::snprintf(text, sizeof text, "perplexity %.2f, %.4f bits a word", std::exp(loss), bits);
  else
    std::snprintf(text, sizeof text, "%.4f bits a letter", bits);
  return text;
}

/// How far a run is; a part of checkpoints.
struct Position {
  int64_t updates = 0;
  Memory memory;

  StateDict state_dict() const {
    StateDict dict{{"updates", tensor({updates}, {.dtype = kInt64, .device = kCPU})}};
    if (memory.h.defined()) dict.emplace_back("h", memory.h), dict.emplace_back("c", memory.c);
    return dict;
  }
  void load_state_dict(const StateDict& dict) {
    const Tensor *const n = find(dict, "updates"), *const h = find(dict, "h"), *const c = find(dict, "c");
    REEL_CHECK(n && !h == !c, "the checkpoint has no position");
    updates = n->item<int64_t>(), memory = {};
    if (h) memory = {h->clone(), c->clone(), {}};
  }
};

/// Returns the model that is best on `dev`.
StateDict train(LanguageModel& model, const Tensor& text, const Tensor& dev, const io::Metadata& metadata,
                const Options& o) {
  const data::BpttDataset pieces(text, {.batch_size = o.batch, .steps = o.steps});
  const Device device = model.embedding.weight.device();
  const std::vector<Tensor> parameters = model.parameters();
  const int64_t last = o.updates > 0 ? o.updates : o.epochs * pieces.size();
  optim::Adam adam(parameters, {.lr = o.lr});
  optim::OneCycleLR schedule(
      adam, {.max_lr = o.lr, .total_steps = last + 1, .pct_start = 0.05, .cycle_momentum = false, .div_factor = 10});
  Position at;
  EpochTotals totals;
  Best best;
  if (!o.load.empty()) best.keep(-evaluate(model, dev, o), model.state_dict());
  Checkpoints checkpoints(o, metadata);
  checkpoints.add("model", model).add("optimizer", adam).add("schedule", schedule).add("position", at);
  checkpoints.add("totals", totals).add("best", best).resume();
  Log log(o, at.updates);
  while (at.updates < last) {
    const int64_t stop = std::min(at.updates - at.updates % o.every + o.every, last);
    const int64_t tokens = o.batch * o.steps;
    ProgressBar progress =
        progress_bar("update " + std::to_string(at.updates), stop * tokens, "tokens", at.updates * tokens);
    model.train();
    do {
      const int64_t piece = at.updates % pieces.size();
      if (piece == 0 || o.transformer) at.memory = {};
      const auto [x, y] = pieces.get(piece);
      const Tensor loss = model.loss(model.forward(x.to(device), at.memory), y.to(device));
      at.memory = at.memory.detach();
      adam.zero_grad();
      loss.backward();
      optim::clip_grad_norm(parameters, o.clip);
      adam.step();
      schedule.step();
      ++at.updates;
      totals.add(loss.detach() * static_cast<double>(y.numel()), y.numel());
      progress.update(at.updates * tokens, "loss", [&] { return totals.mean(); });
      if (at.updates < stop) checkpoints.step();
    } while (at.updates < stop);
    const double speed = progress.rate(), score = evaluate(model, dev, o);
    const bool better = best.keep(-score, model.state_dict());
    std::printf("update %6lld  train: %s  dev: %s  %.0f tokens/s%s\n", static_cast<long long>(at.updates),
                to_string(totals.mean(), o).c_str(), to_string(score, o).c_str(), speed, better ? "  best" : "");
    std::fflush(stdout);
    log.add({{"train/loss", totals.mean()}, {"dev/loss", score}, {"train/tokens per second", speed}}, at.updates);
    if (better && !o.save.empty()) save_model(best.state(), o.save, metadata);
    totals.reset();
    checkpoints.save();
  }
  if (!o.save.empty()) save_model(best.state(), o.save, metadata);  // also if another run has found it
  std::fprintf(stderr, "%.0f CPU seconds\n", static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
  return best.state();
}

// ---- writing --------------------------------------------------------------------------------------------------------

/// Continues the prompt, which begins a line, by so many tokens.
std::string write(LanguageModel& model, const data::Vocabulary& tokens, const Options& o) {
  NoGrad guard;
  model.eval();
  std::vector<std::string> text{"\n"};
  if (o.words)
    for (const std::string& word : data::split_words(o.prompt)) text.push_back(word);
  else
    for (const std::string_view letter : data::split_characters(o.prompt)) text.emplace_back(letter);
  Memory memory;
  const size_t end = text.size() + static_cast<size_t>(o.generate);
  for (size_t i = 0; text.size() < end; ++i) {
    const Tensor x = tensor({tokens.id(text[i])}, {.device = model.embedding.weight.device()}).view({1, 1});
    const Tensor features = model.forward(x, memory);
    if (i + 1 < text.size()) continue;  // the prompt goes on
    const Tensor scores = model.log_prob(features);
    const Tensor next = o.temperature > 0 ? multinomial(softmax(scores / o.temperature, 1), 1) : argmax(scores, 1);
    text.push_back(tokens.token(next.item<int64_t>()));
  }
  std::string joined;
  for (size_t i = 1; i < text.size(); ++i)
    joined += (o.words && i > 1 && text[i] != "\n" && text[i - 1] != "\n" ? " " : "") + text[i];
  return joined;
}

void run(Options o) {
  REEL_CHECK(distributed::world_size() == 1, "this sample trains in one process, whose ops use all cores");
  manual_seed(o.seed);
  set_default_device(device_of(o));
  StateDict loaded;
  std::optional<data::Vocabulary> known;
  if (!o.load.empty()) {
    io::Metadata metadata;
    loaded = io::load(o.load, &metadata);
    known = read_metadata(o, metadata);
  }
  const Text text = o.data.empty() ? generate_text(8000, o.seed, o, known) : read_text(o.data, o, known);
  const int64_t n = text.ids.numel(), held_out = n / 20, size = text.tokens.size();
  std::erase_if(o.cutoffs, [&](int64_t cutoff) { return cutoff <= 0 || cutoff >= size; });
  std::printf("data: %s, %lld %s, %lld different ones\n", o.data.empty() ? "a made-up language" : o.data.c_str(),
              static_cast<long long>(n), o.words ? "words" : "letters", static_cast<long long>(size));
  if (text.entropy) std::printf("best possible: %s\n", to_string(*text.entropy * std::numbers::ln2, o).c_str());
  const Tensor first = text.ids.narrow(0, 0, n - 2 * held_out), test = text.ids.narrow(0, n - held_out, held_out);
  const Tensor dev = text.ids.narrow(0, n - 2 * held_out, std::min(held_out, o.dev_tokens));

  LanguageModel model(size, o);
  if (!o.load.empty()) model.load_state_dict(loaded);
  if (!o.evaluate) model.load_state_dict(train(model, first, dev, metadata_of(o, text.tokens), o));
  std::printf("dev:  %s\n", to_string(evaluate(model, dev, o), o).c_str());
  std::printf("test: %s\n", to_string(evaluate(model, test, o), o).c_str());
  manual_seed(o.seed);
  if (o.generate > 0) std::printf("%s\n", write(model, text.tokens, o).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = parse(argc, argv, options)) return *status;
  return status_of("lm", [&] { run(options); });
}
