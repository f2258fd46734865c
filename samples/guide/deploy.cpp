#include "samples/guide/guide.h"

#include <iostream>
#include <thread>

namespace guide_deploy {
using namespace reel;
using guide::Net;

void run() {
  {
    const Net trained;
    // [save]
    io::save(trained, "model.safetensors", {{"classes", "cat,dog,bird"}});
    // [/save]
  }
  // [load]
  Net net;
  io::Metadata metadata;
  net.load_state_dict(io::load("model.safetensors", &metadata));  // or io::load(net, file)
  net.eval();
  NoGrad guard;  // of this thread: predictions record nothing
  Tensor scores = softmax(net(randn({1, 4})), 1);
  // [/load]
  REEL_CHECK(metadata.at("classes") == "cat,dog,bird" && scores.shape() == (Shape{1, 3}), "load");

  nn::Sequential classifier{nn::Conv2d(3, 16, 3), nn::BatchNorm2d(16), relu, nn::Flatten(),
                            nn::Linear(16 * 30 * 30, 10)};
  // [fuse]
  std::cout << nn::fuse_for_inference(classifier, zeros({1, 3, 32, 32}));  // what was fused, and why the rest was not
  Tensor prediction = classifier(randn({1, 3, 32, 32}));
  // [/fuse]
  REEL_CHECK(prediction.shape() == (Shape{1, 10}), "fuse");

  // [threads]
  set_num_threads(1);  // each request on one core; several requests share the model, which none of them changes
  std::vector<std::thread> workers;
  std::vector<int64_t> answers(4);
  for (size_t i = 0; i < answers.size(); ++i)
    workers.emplace_back([&, i] {
      NoGrad none;
      answers[i] = argmax(net(randn({1, 4})), 1).item<int64_t>();
    });
  for (std::thread& worker : workers) worker.join();
  // [/threads]
  for (int64_t answer : answers) REEL_CHECK(answer >= 0 && answer < 3, "threads");
}

}  // namespace guide_deploy

void deploy() { guide_deploy::run(); }
