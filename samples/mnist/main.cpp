// Softmax regression, a perceptron or LeNet reads images: MNIST, Fashion-MNIST, or drawn digits that need no files.
#include <cstdio>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "digits.h"
#include "models.h"
#include "reel/reel.h"
#include "samples/checkpoints.h"
#include "samples/common.h"
#include "samples/log.h"
#include "samples/progress.h"

using namespace reel;

namespace {

struct Options : CommonOptions {
  std::string model = "lenet";
  bool flip = false;
  int workers = 1;
  double weight_decay = 1e-3;
  Options() { batch = 64, lr = 2e-3; }
};

/// Fills the options; a number is the program's exit status.
std::optional<int> parse(int argc, char** argv, Options& o) {
  CLI::App app(
      "Classifies images of 28 x 28: MNIST or Fashion-MNIST with --data DIR (the four idx files, .gz or not), without "
      "it drawn digits.");
  add_common_options(app, o, "images");
  app.add_option("--data", o.data, "folder with train-images-idx3-ubyte[.gz] and its three companions");
  app.add_option("--model", o.model, "softmax, mlp or lenet")->check(CLI::IsMember({"softmax", "mlp", "lenet"}));
  app.add_flag("--flip", o.flip, "show images mirrored half of the time (for clothes, not for digits)");
  app.add_option("--lr", o.lr, "AdamW's largest learning rate, reached after a third of the steps");
  app.add_option("--weight-decay", o.weight_decay, "decoupled weight decay");
  app.add_option("--workers", o.workers, "threads that make batches")->check(CLI::Range(0, 256));
  return parse_arguments(app, argc, argv);
}

/// The part of the images, in per cent, that the model takes for what they are.
template <data::Dataset Images>
double accuracy(Classifier& model, const Images& images, Device device) {
  NoGrad guard;
  model.eval();
  data::DataLoader loader(&images, {.batch_size = 500, .device = device});
  Tensor right = zeros({}, {.dtype = kInt64, .device = device});
  for (auto [x, y] : loader) right += sum(argmax(model(x), 1) == y);
  return 100.0 * right.item<double>() / static_cast<double>(images.size());
}

/// Images [begin, end) of a data set.
template <class Images>
data::Subset<Images> slice(const std::shared_ptr<const Images>& images, int64_t begin, int64_t end) {
  std::vector<int64_t> indices(static_cast<size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return {images, std::move(indices)};
}

template <data::Dataset Images>
void train(Classifier& model, const Images& images, const Images& dev, Device device, const Options& o) {
  // On several processes each reads its share of the images, and gradients are the mean over all.
  distributed::DistributedDataParallel ddp(model);
  data::DataLoader loader(&images, distributed::DistributedSampler(images.size(), {.seed = o.seed}),
                          {.batch_size = o.batch, .workers = o.workers, .device = device});
  if (distributed::rank() > 0) manual_seed(o.seed + distributed::rank());  // dropout of its own
  optim::AdamW adam(model.parameters(), {.lr = o.lr, .weight_decay = o.weight_decay});
  optim::OneCycleLR schedule(adam, {.max_lr = o.lr, .total_steps = o.epochs * loader.size() + 1});
  EpochTotals totals(device);
  Best best;
  if (!o.load.empty()) best.keep(accuracy(model, dev, device), model.state_dict());
  Checkpoints checkpoints(o, {{"model", o.model}});
  checkpoints.add("model", model).add("optimizer", adam).add("schedule", schedule).add("data", loader);
  checkpoints.add("totals", totals).add("best", best).resume();
  Log log(o, loader.epoch());
  while (loader.epoch() < o.epochs) {
    const int64_t epoch = loader.epoch() + 1;
    model.train();
    double speed = 0;
    {
      int64_t done = loader.position() * o.batch;
      ProgressBar progress = progress_bar("epoch " + std::to_string(epoch), loader.size() * o.batch, "images", done);
      for (auto [x, y] : loader) {
        if (o.flip) {
          const Tensor mirrored = rand({x.size(0), 1, 1, 1}, {.device = device}) < 0.5;
          x = where(mirrored, flip(x, 3), x);
        }
        const Tensor loss = nn::cross_entropy(model(x), y);
        adam.zero_grad();
        loss.backward();
        adam.step();
        schedule.step();
        totals.add(loss.detach() * y.numel(), y.numel());
        done += y.numel();
        progress.update(done, "loss", [&] { return totals.mean(); });
        checkpoints.step();
      }
      speed = progress.rate();
    }
    totals.collect();
    const double right = accuracy(model, dev, device);
    const bool better = best.keep(right, model.state_dict());
    std::printf("epoch %2lld  loss %.4f  dev accuracy %.2f %%  %.0f images/s%s\n", static_cast<long long>(epoch),
                totals.mean(), right, speed, better ? "  best" : "");
    std::fflush(stdout);
    log.add({{"train/loss", totals.mean()}, {"dev/accuracy", right}, {"train/images per second", speed}}, epoch);
    if (better && !o.save.empty()) save_model(best.state(), o.save);
    totals.reset();
    checkpoints.save();
  }
  if (!o.save.empty()) save_model(best.state(), o.save);  // also if another run has found it
  model.load_state_dict(best.state());
}

/// The last twelfth of the training images is held out, to choose the best epoch by.
template <data::Dataset Images>
void run(const std::shared_ptr<const Images>& all, const Images& test, const Options& o) {
  manual_seed(o.seed);
  const Device device = device_of(o);
  const Tensor first = all->get(0).first;  // [1, height, width]
  const auto model = make_model(o.model, first.size(1), first.size(2));
  model->to(device);
  if (!o.load.empty()) io::load(*model, o.load);
  const int64_t kept = all->size() - all->size() / 12;
  const auto images = slice(all, 0, kept), dev = slice(all, kept, all->size());
  std::printf("data: %s, %lld + %lld + %lld images to train, choose and test\n%s\n",
              o.data.empty() ? "drawn digits" : o.data.c_str(), static_cast<long long>(images.size()),
              static_cast<long long>(dev.size()), static_cast<long long>(test.size()), model->to_string().c_str());
  if (!o.evaluate) train(*model, images, dev, device, o);
  std::printf("dev accuracy %.2f %%\n", accuracy(*model, dev, device));
  std::printf("test accuracy %.2f %%\n", accuracy(*model, test, device));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = parse(argc, argv, options)) return *status;
  return status_of("mnist", [&] {
    if (options.data.empty()) return run(std::make_shared<const Digits>(6000, 1), Digits(2000, 2), options);
    // Mean and deviation of MNIST's pixels, which suit clothes as well.
    const double mean = 0.1307, std = 0.3081;
    const auto part = [&](bool train) { return data::Mnist(options.data, {.train = train, .mean = mean, .std = std}); };
    run(std::make_shared<const data::Mnist>(part(true)), part(false), options);
  });
}
