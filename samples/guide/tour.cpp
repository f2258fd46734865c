// The code of tour.md.
#include <reel/tensorboard.h>

#include "samples/guide/guide.h"

namespace guide_tour {
using namespace reel;
using guide::Net;

void run() {
  Net net;
  nn::Embedding words(50, 4, {.sparse = true});
  const std::vector<Tensor> steps = {randn({1, 4}), randn({1, 4}), randn({1, 4})};
  const Tensor images = randn({64, 4}), labels = randint(0, 3, {64});

  // [tensors]
  Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}});
  Tensor y = arange(6).view({2, 3}).to(kFloat32);
  Tensor z = y.index({0, kNone, tensor({true, false, true})});  // numbers, slices, masks, ids, as in NumPy
  y[0].fill_(7);                                                // writing into parts
  y.index_put_({1, Slice(0, 2)}, x[1]);
  Tensor p = y.softmax(-1);  // member or function: softmax(y, -1) is the same
  Tensor best = p.argmax(1), total = sum(p * p);
  // [/tensors]
  REEL_CHECK(z.numel() == 2 && y[1][0].item<float>() == 3 && best.shape() == (Shape{2}), "tensors");
  REEL_CHECK(total.numel() == 1, "total");

  // [cell]
  nn::LSTMCell cell(4, 8);  // a sequence as long as it is
  CellState state;
  for (const Tensor& step : steps) state = cell(step, state);
  // [/cell]
  REEL_CHECK(state.h.shape() == (Shape{1, 8}), "cell");

  // [optimizer]
  optim::Adagrad opt({words.weight}, {.lr = 0.1});  // parameter groups with options of their own
  opt.add_param_group(cell.parameters(), {.lr = 0.05, .weight_decay = 1e-4});
  opt.add_param_group(net.parameters(), {.lr = 0.01});
  // [/optimizer]

  // [loop]
  data::TensorDataset pairs(images, labels);  // or anything with size() and get(i), a std::vector, say
  data::DataLoader loader(pairs, {.batch_size = 32, .shuffle = true, .workers = 2});
  for (auto [inputs, targets] : loader) {
    Tensor loss = cross_entropy(net(inputs), targets);
    opt.zero_grad();
    loss.backward();
    optim::clip_grad_norm(net.parameters(), 5.0);
    opt.step();
  }
  {
    NoGrad guard;  // evaluation records nothing
    net.eval();
    net(images);
  }
  io::save(net, "net.safetensors");
  io::load(net, "net.safetensors");
  // [/loop]

  const int64_t step = 1;
  {
    Tensor loss = cross_entropy(net(images), labels);
    // [log]
    tensorboard::SummaryWriter log("runs/tour");  // <reel/tensorboard.h>, then tensorboard --logdir runs
    log.add_scalar("train/loss", loss.item<double>(), step);
    log.add_histogram("words", words.weight, step);
    // [/log]
  }
}

}  // namespace guide_tour

void tour() { guide_tour::run(); }
