// Softmax regression, a perceptron or LeNet reads images: MNIST, Fashion-MNIST, or drawn digits that need no files.
#include <cstdio>
#include <optional>
#include <string>

#include "digits.h"
#include "models.h"
#include "reel/reel.h"
#include "samples/common.h"
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

template <data::Dataset Images>
void train(Classifier& model, const Images& images, const Images& test, Device device, const Options& o) {
  data::DataLoader loader(&images, {.batch_size = o.batch, .shuffle = true, .workers = o.workers, .device = device});
  optim::AdamW adam(model.parameters(), {.lr = o.lr, .weight_decay = o.weight_decay});
  optim::OneCycleLR schedule(adam, {.max_lr = o.lr, .total_steps = o.epochs * loader.size() + 1});
  for (int epoch = 1; epoch <= o.epochs; ++epoch) {
    model.train();
    Tensor total = zeros({}, {.dtype = kFloat64, .device = device});  // read only to be shown
    int64_t done = 0;
    double seconds = 0, mean = 0;
    const auto mean_so_far = [&] { return total.item<double>() / static_cast<double>(done); };
    {
      Progress progress("epoch " + std::to_string(epoch), images.size(), "images");
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
        total += loss.detach() * y.numel();
        done += y.numel();
        progress.update(done, mean_so_far);
      }
      mean = mean_so_far();
      seconds = progress.seconds();
    }
    std::printf("epoch %2d  loss %.4f  test accuracy %.2f %%  %.0f images/s\n", epoch, mean,
                accuracy(model, test, device), static_cast<double>(done) / seconds);
    std::fflush(stdout);
  }
}

template <data::Dataset Images>
void run(const Images& images, const Images& test, const Options& o) {
  manual_seed(o.seed);
  const Device device = Device::from_string(o.device);
  const auto model = make_model(o.model);
  model->to(device);
  if (!o.load.empty()) io::load(*model, o.load);
  std::printf("data: %s, %lld + %lld images to train and test\n%s\n", o.data.empty() ? "drawn digits" : o.data.c_str(),
              static_cast<long long>(images.size()), static_cast<long long>(test.size()), model->to_string().c_str());
  if (!o.evaluate) train(*model, images, test, device, o);
  if (!o.save.empty()) io::save(*model, o.save);
  std::printf("test accuracy %.2f %%\n", accuracy(*model, test, device));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = parse(argc, argv, options)) return *status;
  return status_of("mnist", [&] {
    if (options.data.empty()) {
      run(Digits(6000, 1), Digits(2000, 2), options);
    } else {
      // Mean and deviation of MNIST's pixels, which suit clothes as well.
      const double mean = 0.1307, std = 0.3081;
      run(data::Mnist(options.data, {.train = true, .mean = mean, .std = std}),
          data::Mnist(options.data, {.train = false, .mean = mean, .std = std}), options);
    }
  });
}
