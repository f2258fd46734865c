// Residual nets classify images: CIFAR, MNIST's files or folders of PNG and JPEG, or drawn shapes that need no files.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "dataset.h"
#include "reel/reel.h"
#include "samples/checkpoints.h"
#include "samples/common.h"
#include "samples/log.h"
#include "samples/progress.h"
#ifdef REEL_SAMPLES_IMAGE
#include "reel/image.h"
#endif

using namespace reel;
namespace transforms = data::transforms;

namespace {

struct Options : CommonOptions {
  std::string model = "resnet8", body, features, grid;
  int64_t width = 0, stride = 1, crop = 2, side = 224, drawn = 6000;
  bool flip = true, mirror = false;
  int workers = 1;
  double weight_decay = 5e-4, smoothing = 0, average = 0.5;
  Options() { batch = 64, lr = 0.1; }
};

/// Fills the options; a number is the program's exit status.
std::optional<int> parse(int argc, char** argv, Options& o) {
  CLI::App app(
      "Trains a residual net on images. --data DIR holds the four idx files of MNIST or Fashion-MNIST, the binary "
      "files of CIFAR-10 or CIFAR-100, or folders train/CLASS and test/CLASS of .png and .jpg; without it shapes are "
      "drawn.");
  add_common_options(app, o, "images");
  app.add_option("--data", o.data, "folder of the images");
  app.add_option("--model", o.model,
                 "resnet8, resnet14 or resnet20 (for images of about 32 x 32), or resnet18 (for large ones)")
      ->check(CLI::IsMember({"resnet8", "resnet14", "resnet20", "resnet18"}));
  app.add_option("--body", o.body,
                 "start from this file but for the last layer: the weights of torchvision's resnet18, say");
  app.add_option("--width", o.width, "channels of the first stage; 0: 16, and 64 for resnet18")
      ->check(CLI::Range(0, 4096));
  app.add_option("--stride", o.stride, "of the first convolution, but for resnet18; 2 takes a quarter of the time")
      ->check(CLI::Range(1, 2));
  app.add_option("--crop", o.crop, "pixels by which training images are shifted at random, at most")
      ->check(CLI::Range(0, 1024));
  app.add_flag("--flip,!--no-flip", o.flip, "show training images mirrored half of the time (not for digits)");
  app.add_flag("--mirror", o.mirror, "judge by the sum of what the net says to an image and to its mirror image");
  app.add_option("--side", o.side, "height and width to which the images of folders are cut")
      ->check(CLI::Range(8, 4096));
  app.add_option("--drawn", o.drawn, "shapes to draw for training")->check(CLI::Range(100, 1000000));
  app.add_option("--lr", o.lr, "SGD's largest learning rate; it rises for a fifth of the steps and falls as a cosine");
  app.add_option("--weight-decay", o.weight_decay, "factor of the L2 penalty");
  app.add_option("--smoothing", o.smoothing, "part of the target that is spread over all classes")
      ->check(CLI::Range(0., 1.));
  app.add_option("--average", o.average, "test and save the moving average of weights over about so many epochs")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--workers", o.workers, "threads that make batches")->check(CLI::Range(0, 256));
  app.add_option("--features", o.features, "write the pooled activations of the test images to this .npy file");
#ifdef REEL_SAMPLES_IMAGE
  app.add_option("--grid", o.grid, "write 64 training images, as the net is shown them, to this .png file");
#endif
  return parse_arguments(app, argc, argv);
}

models::ResNet make_model(const Options& o, int64_t num_classes, int64_t in_channels) {
  if (o.model == "resnet18")
    return models::resnet18({.num_classes = num_classes, .in_channels = in_channels, .width = o.width ? o.width : 64});
  return models::cifar_resnet(
      std::stoi(o.model.substr(6)),
      {.num_classes = num_classes, .in_channels = in_channels, .width = o.width ? o.width : 16, .stride = o.stride});
}

/// Loads all but the last layer, which is of the classes that another net has learnt.
void load_body(models::ResNet& model, const std::string& file) {
  StateDict body = io::load(file, {.keep = [](std::string_view name) { return !name.starts_with("fc."); }});
  for (const auto& [name, x] : model.state_dict())
    if (name.starts_with("fc.")) body.emplace_back(name, x);
  model.load_state_dict(body);
}

/// The part of the images, in per cent, that the model takes for what they are. With `mirror` it sees each one also
/// mirrored, and the sum of its probabilities counts.
template <data::Dataset D>
double accuracy(models::ResNet& model, const D& images, Device device, bool mirror) {
  NoGrad guard;
  model.eval();
  data::DataLoader loader(&images, {.batch_size = 500, .device = device});
  Tensor right = zeros({}, {.dtype = kInt64, .device = device});
  for (auto [x, y] : loader) {
    Tensor said = softmax(model(x), 1);
    if (mirror) said = said + softmax(model(flip(x, {3})), 1);
    right += sum(argmax(said, 1) == y);
  }
  return 100.0 * right.item<double>() / static_cast<double>(images.size());
}

/// Parameters and the norms' running statistics: what is averaged.
std::vector<Tensor> averaged_tensors(const models::ResNet& model) {
  std::vector<Tensor> all = model.parameters();
  for (const Tensor& buffer : model.buffers())
    if (buffer.is_floating_point()) all.push_back(buffer);
  return all;
}

template <data::Dataset Train, data::Dataset Dev>
void train(models::ResNet& model, const Train& images, const Dev& dev, Device device, const Options& o) {
  // On several processes each reads its share of the images, and gradients are the mean over all.
  distributed::DistributedDataParallel ddp(model);
  data::DataLoader loader(
      &images, distributed::DistributedSampler(data::num_samples(images), {.seed = o.seed}),
      {.batch_size = o.batch, .workers = o.workers, .drop_last = true, .device = device, .seed = o.seed});
  REEL_CHECK(loader.size() > 0, "--batch ", o.batch, " is more than there are images");
  optim::SGD sgd(model.parameters(), {.lr = o.lr, .momentum = 0.9, .weight_decay = o.weight_decay, .nesterov = true});
  optim::OneCycleLR schedule(
      sgd, {.max_lr = o.lr, .total_steps = o.epochs * loader.size() + 1, .pct_start = 0.2, .cycle_momentum = false});
  const double steps = std::max(1., o.average * static_cast<double>(loader.size()));
  optim::ExponentialMovingAverage average(averaged_tensors(model), 1 - 1 / steps);
  EpochTotals totals(device);
  Best best;
  Checkpoints checkpoints(o, {{"model", o.model}});
  checkpoints.add("model", model).add("optimizer", sgd).add("schedule", schedule).add("average", average);
  checkpoints.add("data", loader).add("totals", totals).add("best", best).resume();
  Log log(o, loader.epoch());
  while (loader.epoch() < o.epochs) {
    const int64_t epoch = loader.epoch() + 1;
    model.train();
    double speed = 0;
    {
      int64_t done = loader.position() * o.batch;
      ProgressBar progress = progress_bar("epoch " + std::to_string(epoch), loader.size() * o.batch, "images", done);
      for (auto [x, y] : loader) {
        const Tensor loss = nn::cross_entropy(model(x), y, {.label_smoothing = o.smoothing});
        sgd.zero_grad();
        loss.backward();
        sgd.step();
        schedule.step();
        average.update();
        totals.add(loss.detach() * y.numel(), y.numel());
        done += y.numel();
        progress.update(done, "loss", [&] { return totals.mean(); });
        checkpoints.step();
      }
      speed = progress.rate();
    }
    totals.collect();
    double right = 0;
    bool better = false;
    {
      const auto averaged = average.apply();
      right = accuracy(model, dev, device, o.mirror);
      better = best.keep(right, model.state_dict());
    }
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

/// The activations that the last layer reads, [n, features], in the order of the images.
template <data::Dataset D>
Tensor features(models::ResNet& model, const D& images, Device device) {
  NoGrad guard;
  model.eval();
  data::DataLoader loader(&images, {.batch_size = 500, .device = device});
  std::vector<Tensor> batches;
  for (auto [x, y] : loader) batches.push_back(model.features(x).to(kCPU));
  return cat(batches);
}

/// A thirtieth of the training images is held out, to choose the best epoch by; of few images it is a fifth.
void run(const Options& o) {
  manual_seed(o.seed);
  const Device device = device_of(o);
  const ImageSets sets = load_images(o.data, o.side, o.drawn);
  const Shape shape = sets.train.get(0).first.shape();  // [channels, height, width]
  models::ResNet model = make_model(o, sets.num_classes, shape[0]);
  model.to(device);
  if (!o.body.empty()) load_body(model, o.body);
  if (!o.load.empty()) io::load(model, o.load);

  std::vector<int64_t> order(static_cast<size_t>(sets.train.size()));
  std::iota(order.begin(), order.end(), 0);
  if (sets.in_order_of_classes) order = data::random_split(&sets.train, {1.0})[0].indices();
  const auto kept = order.end() - std::max(sets.train.size() / 30, std::min<int64_t>(sets.train.size() / 5, 500));
  const auto [mean, deviation] = channel_statistics(sets.train);
  const transforms::Compose plain(transforms::ConvertImageDtype(), transforms::Normalize(mean, deviation));
  const transforms::Compose shown(transforms::RandomCrop({shape[1], shape[2]}, {.padding = o.crop}),
                                  transforms::RandomHorizontalFlip(o.flip ? 0.5 : 0), plain);
  const auto images = data::transform(data::subset(&sets.train, {order.begin(), kept}), shown);
  const auto dev = data::transform(data::subset(&sets.train, {kept, order.end()}), plain);
  const auto test = data::transform(&sets.test, plain);
  int64_t count = 0;
  for (const Tensor& parameter : model.parameters()) count += parameter.numel();
  std::printf("data: %s, %lld + %lld + %lld images %s to train, choose and test\n%s of width %lld, %lld parameters\n",
              sets.name.c_str(), static_cast<long long>(images.size()), static_cast<long long>(dev.size()),
              static_cast<long long>(test.size()), shape.to_string().c_str(), o.model.c_str(),
              static_cast<long long>(model.options.width), static_cast<long long>(count));
#ifdef REEL_SAMPLES_IMAGE
  if (!o.grid.empty()) {
    std::vector<Tensor> some;
    for (int64_t i = 0; i < std::min<int64_t>(64, images.size()); ++i) some.push_back(std::get<0>(images.get(i)));
    image::write_image(image::make_grid(stack(some), {.normalize = true, .scale_each = true}), o.grid);
  }
#endif
  if (!o.evaluate) train(model, images, dev, device, o);
  std::printf("dev accuracy %.2f %%\n", accuracy(model, dev, device, o.mirror));
  std::printf("test accuracy %.2f %%\n", accuracy(model, test, device, o.mirror));
  if (!o.features.empty() && distributed::rank() == 0) io::save_npy(features(model, test, device), o.features);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto status = parse(argc, argv, options)) return *status;
  return status_of("images", [&] { run(options); });
}
