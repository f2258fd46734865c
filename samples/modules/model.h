#pragma once
#include <cstdint>

#include "dataset.h"
#include "reel/reel.h"

using namespace reel;

/// What a scene looks like: [1, channels, height, width], bytes, becomes [1, features, rows, columns], of which each
/// cell describes about 8 x 8 pixels.
struct Eye : nn::Layer<Eye> {
  Eye(Module& parent, std::string name, int64_t channels, int64_t features)
      : Layer(parent, std::move(name)),
        net(*this, "net", nn::Conv2d(channels, 16, 3, {.stride = 2, .padding = 1}), nn::ReLU(),
            nn::Conv2d(16, 32, 3, {.stride = 2, .padding = 1}), nn::ReLU(),
            nn::Conv2d(32, features, 3, {.stride = 2, .padding = 1}), nn::ReLU()) {
    for (const Tensor& weight : parameters())
      if (weight.dim() > 1) nn::init::kaiming_normal_(weight);
  }
  Tensor forward(const Tensor& scene) const { return net(scene.to(kFloat32) / 255); }

  nn::Sequential net;
};

/// A neural module network (Andreas et al. 2016): each question is a net of its own, put together from modules as its
/// program says. What a module finds in a scene is a map [1, 1, rows, columns] of numbers between 0 and 1. Modules have
/// their own weights, one for each word, and meet in other questions' nets; nothing tells them what their word means.
struct ModuleNet : nn::Layer<ModuleNet> {
  ModuleNet(const Words& words, const Shape& scene, int64_t features)
      : see(*this, "see", scene[1], features),
        find(*this, "find"),
        relocate(*this, "relocate"),
        thing(*this, "thing", features, 1, 1),
        exists(*this, "exists", 1, words.answers.size()),
        count(*this, "count", nn::Linear(1, 64), nn::ReLU(), nn::Linear(64, words.answers.size())),
        describe(*this, "describe") {
    for (const std::string& word : words.find.tokens()) find.emplace(word, features, 1, 1);
    for (const std::string& word : words.relocate.tokens())
      relocate.emplace(word, 1, 1, 3, nn::ConvLayerOptions<2>{.padding = 1});
    for (const std::string& word : words.describe.tokens()) describe.emplace(word, features, words.answers.size());
  }

  /// The scores [1, answers] of the answers to a question about a scene [1, channels, height, width].
  Tensor forward(const Tensor& scene, const Question& question) const {
    const Program& program = question.program;
    const Tensor seen = see(scene), where = look(program.parts[0], seen);
    switch (program.kind) {
      case Program::kExists: return exists(amax(where, {2, 3}));
      case Program::kCount: return count(sum(where, {2, 3}));
      default: return describe[program.word](sum(where * seen, {2, 3}));
    }
  }

  /// Where in the scene the things are that a part of a program speaks of.
  Tensor look(const Program& program, const Tensor& seen) const {
    const auto part = [&](size_t i) { return look(program.parts[i], seen); };
    switch (program.kind) {
      case Program::kFind: return sigmoid(find[program.word](seen));
      case Program::kAnd: return part(0) * part(1);
      case Program::kOr: return 1 - (1 - part(0)) * (1 - part(1));
      default: return sigmoid(relocate[program.word](part(0))) * sigmoid(thing(seen));  // where something is
    }
  }

  Eye see;
  nn::ModuleDict<nn::Conv2d> find, relocate;
  nn::Conv2d thing;
  nn::Linear exists;
  nn::Sequential count;
  nn::ModuleDict<nn::Linear> describe;
};

/// The same without modules: one net for all questions, which reads the program as a sentence.
struct CnnLstm : nn::Layer<CnnLstm> {
  CnnLstm(const Words& words, const Shape& scene, int64_t features)
      : see(*this, "see", scene[1], features),
        embedding(*this, "embedding", words.all.size(), 64),
        lstm(*this, "lstm", 64, 128),
        join(*this, "join", 128 + cells(scene) * features, 256),
        out(*this, "out", 256, words.answers.size()) {}

  Tensor forward(const Tensor& scene, const Question& question) const {
    const Tensor read = lstm(embedding(question.words)).state.h;  // [1, 128]
    return out(relu(join(cat({flatten(see(scene), 1), read}, 1))));
  }

  Eye see;
  nn::Embedding embedding;
  nn::LSTM lstm;
  nn::Linear join, out;

 private:
  /// Of what is seen of a scene.
  static int64_t cells(const Shape& scene) {
    const auto halved_thrice = [](int64_t pixels) { return (pixels + 7) / 8; };
    return halved_thrice(scene[2]) * halved_thrice(scene[3]);
  }
};
