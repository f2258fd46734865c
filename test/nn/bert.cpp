#include "reel/nn/bert.h"

#include <map>

#include "reel/autograd.h"
#include "reel/io.h"
#include "reel/nn.h"
#include "reel/ops.h"
#include "reel/random.h"
#include "reel/testing.h"
#include "test/support/folder.h"
#include "test/support/load.h"
#include "test/support/pch.h"

using namespace reel;
using Catch::Matchers::Contains;

namespace {

const std::filesystem::path kModel = "test/reference/bert";  // made by the transformers package: model.py there
const testing::AssertCloseOptions kClose{.rtol = 1e-5, .atol = 1e-5};

struct Figures {
  StateDict dict = load_reference("bert/figures.safetensors");
  Ragged ids{dict["ids"], Lengths::of(dict["lengths"])};
};

/// A folder with the model, changed.
void copy_model(const Folder& folder) {
  for (const char* file : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(kModel / file, folder / file, std::filesystem::copy_options::overwrite_existing);
}
void replace(const std::filesystem::path& file, const std::string& from, const std::string& to) {
  std::string text = contents(file);
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  write(file, text.replace(at, from.size(), to));
}
/// Its weights under the names that f gives; without those that it calls "".
template <class F>
void rename_weights(const Folder& folder, const F& f) {
  StateDict changed;
  for (const auto& [name, tensor] : io::load(kModel / "model.safetensors"))
    if (const std::string now = f(name); !now.empty()) changed.emplace_back(now, tensor);
  io::save(changed, folder / "model.safetensors");
}

/// Smaller than the one in the file.
const nn::BertConfig kTiny{.vocab_size = 5,
                           .hidden_size = 4,
                           .num_hidden_layers = 1,
                           .num_attention_heads = 2,
                           .intermediate_size = 6,
                           .max_position_embeddings = 4};
Ragged sequences(const std::vector<int64_t>& ids, const std::vector<int64_t>& lengths) {
  return {tensor(ids), Lengths::of(lengths)};
}

}  // namespace

TEST_CASE("a BERT that the transformers package has saved computes in reel what it computes there", "[nn]") {
  const Figures figures;
  const NoGrad guard;
  nn::Bert bert = nn::Bert::load(kModel);
  CHECK_FALSE(bert.is_training());
  bert.to(default_device());
  testing::assert_close(bert(figures.ids).values, figures.dict["hidden"], kClose);
  testing::assert_close(bert(figures.ids, figures.dict["types"]).values, figures.dict["hidden.gelu"], kClose);
  testing::assert_close(bert.embed(figures.ids), figures.dict["mean"], kClose);
  testing::assert_close(bert.embed(figures.ids, nn::BertPooling::kCls), figures.dict["cls"], kClose);
  testing::assert_close(bert.embed(figures.ids, nn::BertPooling::kPooler), figures.dict["pooler"], kClose);
  // The types matter, and so do other dtypes of numbers.
  CHECK_FALSE(allclose(figures.dict["hidden"], figures.dict["hidden.gelu"], 1e-3, 1e-3));
  const Ragged small{figures.ids.values.to(kInt32), figures.ids.lengths};
  CHECK(equal(bert(small, figures.dict["types"].to(kInt32)).values, bert(figures.ids, figures.dict["types"]).values));
}

TEST_CASE("a BERT has the activation that its config.json names", "[nn]") {
  const Figures figures;
  const NoGrad guard;
  for (const std::string name : {"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"}) {
    INFO(name);
    const Folder folder;
    copy_model(folder);
    replace(folder / "config.json", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"" + name + "\"");
    nn::Bert bert = nn::Bert::load(folder.path);
    bert.to(default_device());
    testing::assert_close(bert(figures.ids, figures.dict["types"]).values, figures.dict["hidden." + name], kClose);
  }
}

TEST_CASE("each sequence of a BERT is computed as if it were alone", "[nn]") {
  const NoGrad guard;
  nn::Bert bert = nn::Bert::load(kModel);
  bert.to(default_device());
  const Ragged all = bert(sequences({1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 1, 7, 0, 1}));
  CHECK(all.lengths->to_vector() == std::vector<int64_t>{0, 1, 7, 0, 1});
  testing::assert_close(all[1], bert(sequences({1}, {1})).values, kClose);
  testing::assert_close(all[2], bert(sequences({2, 3, 4, 5, 6, 7, 8}, {7})).values, kClose);
  testing::assert_close(all[4], bert(sequences({9}, {1})).values, kClose);
  const Tensor means = bert.embed(sequences({1}, {0, 1}));
  CHECK(equal(means[0], zeros({8})));
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{}, {0, 0}}) {
    const Ragged none{tensor(std::vector<int64_t>{}), Lengths::of(lengths)};
    CHECK(bert(none).values.shape() == Shape{0, 8});
    CHECK(equal(bert.embed(none), zeros({static_cast<int64_t>(lengths.size()), 8})));
  }
}

// A GPU reports an index that is out of range later.
TEST_CASE("a BERT refuses what is not a sequence of word pieces", "[nn][cpu]") {
  const nn::Bert bert(kTiny);
  CHECK_NOTHROW(bert(sequences({0, 1, 2, 3}, {4})));
  CHECK_THROWS_WITH(bert(sequences({0, 1, 2, 3, 4}, {5})), Contains("Bert: a sequence of 5 word pieces; it takes 4"));
  CHECK_THROWS_WITH(bert(sequences({0, 5}, {2})), Contains("5"));
  CHECK_THROWS_WITH(bert(sequences({0, -1}, {2})), Contains("-1"));
  CHECK_THROWS_WITH(bert(sequences({0, 1}, {1})), Contains("Bert"));  // a row too many
  CHECK_THROWS_WITH(bert(sequences({0}, {2})), Contains("Bert"));
  CHECK_THROWS_WITH(bert(Ragged{tensor({0, 1}), {}}), Contains("Bert: a Ragged without lengths"));
  CHECK_THROWS_WITH(bert(Ragged{{}, Lengths::of(std::vector<int64_t>{1})}), Contains("Bert"));
  CHECK_THROWS_WITH(bert(Ragged{zeros({2, 2}, {.dtype = kInt64}), Lengths::of(std::vector<int64_t>{2})}),
                    Contains("Bert: ids of shape [2, 2], not [2]"));
  CHECK_THROWS_AS(bert(Ragged{ones({2}), Lengths::of(std::vector<int64_t>{2})}), Error);
  CHECK_THROWS_WITH(bert(sequences({0, 1}, {2}), tensor({0})),
                    Contains("token types of shape [1] for ids of shape [2]"));
  CHECK_THROWS_WITH(bert(sequences({0, 1}, {2}), tensor({0, 2})), Contains("2"));
  CHECK_THROWS_WITH(bert.embed(sequences({0}, {1, 0}), nn::BertPooling::kCls), Contains("sequence 1 is empty"));
  CHECK_THROWS_WITH(bert.embed(sequences({0}, {0, 1}), nn::BertPooling::kPooler), Contains("sequence 0 is empty"));
  nn::BertConfig config = kTiny;
  config.pooler = false;
  CHECK_THROWS_WITH(nn::Bert(config).embed(sequences({0}, {1}), nn::BertPooling::kPooler), Contains("no pooler"));
}

TEST_CASE("all parameters of a BERT train", "[nn]") {
  manual_seed(1);
  nn::BertConfig config = kTiny;
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
  nn::Bert bert(config);
  for (const auto& [name, parameter] : bert.named_parameters())
    if (name.find("LayerNorm") == std::string::npos && name.ends_with("weight"))
      CHECK(std::abs(std::sqrt(mean(parameter * parameter).item<double>()) - 0.02) < 0.01);
  const Ragged ids = sequences({0, 1, 2, 3, 4, 4, 0}, {4, 3});
  const Tensor types = tensor({0, 0, 1, 1, 0, 1, 1});
  // A sum of a norm's outputs is constant, so that other weights are needed.
  const Tensor weights = rand({7, 4});
  Tensor loss = sum(bert(ids, types).values * weights) + sum(bert.embed(ids, nn::BertPooling::kPooler));
  loss.backward();
  for (const auto& [name, parameter] : bert.named_parameters()) {
    INFO(name);
    REQUIRE(parameter.grad().defined());
    // Keys' biases add the same to all scores of a query, which a softmax does not see.
    if (!name.ends_with("key.bias")) CHECK(max(abs(parameter.grad())).item<double>() > 0);
  }
}

TEST_CASE("a BERT drops in training alone", "[nn]") {
  manual_seed(1);
  const Ragged ids = sequences({0, 1, 2, 3}, {4});
  nn::BertConfig config = kTiny;
  for (double nn::BertConfig::*p :
       {&nn::BertConfig::hidden_dropout_prob, &nn::BertConfig::attention_probs_dropout_prob}) {
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0;
    config.*p = 0.5;
    nn::Bert bert(config);
    for (const Tensor& parameter : bert.parameters()) nn::init::normal_(parameter);
    CHECK_FALSE(equal(bert(ids).values, bert(ids).values));
    bert.eval();
    CHECK(equal(bert(ids).values, bert(ids).values));
  }
}

TEST_CASE("a BERT's weights may be those of a model for a task, or have TensorFlow's names", "[nn]") {
  const Figures figures;
  const NoGrad guard;
  const auto check = [&](const Folder& folder) {
    nn::Bert bert = nn::Bert::load(folder.path);
    bert.to(default_device());
    testing::assert_close(bert(figures.ids).values, figures.dict["hidden"], kClose);
    return bert;
  };
  const Folder folder;
  copy_model(folder);
  StateDict heads = io::load(kModel / "model.safetensors");
  StateDict all;
  for (const auto& [name, tensor] : heads) all.emplace_back("bert." + name, tensor);
  all.emplace_back("cls.predictions.bias", ones({20}, {.device = kCPU}));
  all.emplace_back("bert.embeddings.position_ids", arange(7, {.device = kCPU}).view({1, 7}));
  io::save(all, folder / "model.safetensors");
  CHECK(check(folder).config.pooler);

  rename_weights(folder, [](std::string name) {
    for (const auto& [now, old] :
         {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}})
      if (const size_t at = name.find(now); at != std::string::npos) name.replace(at, std::string::npos, old);
    return name;
  });
  CHECK(check(folder).config.pooler);

  rename_weights(folder, [](const std::string& name) { return name.starts_with("pooler.") ? "" : name; });
  CHECK_FALSE(check(folder).config.pooler);

  StateDict halves;
  for (const auto& [name, tensor] : heads) halves.emplace_back(name, tensor.to(kFloat16));
  io::save(halves, folder / "model.safetensors");
  nn::Bert bert = nn::Bert::load(folder.path);
  bert.to(default_device());
  CHECK(bert(figures.ids).values.dtype() == kFloat32);
  testing::assert_close(bert(figures.ids).values, figures.dict["hidden"], {.rtol = 1e-2, .atol = 3e-2});
}

TEST_CASE("what reel saves of a BERT it loads again", "[nn]") {
  const NoGrad guard;
  const Folder folder;
  copy_model(folder);
  nn::Bert bert = nn::Bert::load(kModel);
  io::save(bert, folder / "model.safetensors");
  CHECK(bert.state_dict().size() == io::load(kModel / "model.safetensors").size());
  const Ragged ids{tensor({3, 1, 4}), Lengths::of(std::vector<int64_t>{2, 1})};
  CHECK(equal(nn::Bert::load(folder.path)(ids).values, bert(ids).values));
}

TEST_CASE("weights that are missing, of another shape or unknown are errors that name the file", "[nn]") {
  const Folder folder;
  copy_model(folder);
  const auto fails = [&](const char* message) {
    CHECK_THROWS_WITH(nn::Bert::load(folder.path), Contains(message) && Contains("model.safetensors"));
  };
  rename_weights(folder, [](const std::string& name) { return name == "pooler.dense.bias" ? "" : name; });
  fails("missing: pooler.dense.bias");
  rename_weights(folder,
                 [](const std::string& name) { return name == "embeddings.LayerNorm.bias" ? "pooler.x" : name; });
  fails("missing: embeddings.LayerNorm.bias\n  unexpected: pooler.x");
  rename_weights(folder,
                 [](const std::string& name) { return name == "encoder.layer.1.output.dense.bias" ? "" : name; });
  fails("missing: encoder.layer.1.output.dense.bias");
  rename_weights(folder, [](const std::string& name) { return "model." + name; });
  fails(": 0 numbers");
  StateDict twice;
  for (const auto& [name, tensor] : io::load(kModel / "model.safetensors")) {
    twice.emplace_back(name, tensor);
    if (name == "pooler.dense.bias") twice.emplace_back("bert." + name, tensor);
  }
  io::save(twice, folder / "model.safetensors");
  fails("'pooler.dense.bias' is given twice");
  copy_model(folder);
  replace(folder / "config.json", "\"type_vocab_size\": 2", "\"type_vocab_size\": 1");
  fails("shape of embeddings.token_type_embeddings.weight: the module has [1, 8], given is [2, 8]");
  copy_model(folder);
  replace(folder / "config.json", "\"vocab_size\": 20", "\"vocab_size\": 1000000000000");
  fails("config.json describes a Bert of more");
  copy_model(folder);
  replace(folder / "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 9000000000000000000");
  fails("config.json describes a Bert of more");
  std::filesystem::remove(folder / "model.safetensors");
  CHECK_THROWS_AS(nn::Bert::load(folder.path), Error);
  std::filesystem::remove(folder / "config.json");
  CHECK_THROWS_WITH(nn::Bert::load(folder.path), Contains("config.json"));
}

TEST_CASE("a config.json of what Bert is not is an error that names the file", "[nn]") {
  const Folder folder;
  const std::string deep = R"({"hidden_act": )" + std::string(500000, '[') + std::string(500000, ']') + "}";
  const std::pair<std::string, const char*> cases[] = {
      {"", "config.json"},
      {"{", "config.json"},
      {"3", "not a JSON object"},
      {R"({"model_type": "roberta"})", "'model_type' is roberta; Bert's is bert"},
      {R"({"position_embedding_type": "relative_key"})", "'position_embedding_type' is relative_key"},
      {R"({"is_decoder": true})", "no decoder"},
      {R"({"hidden_size": 0})", "hidden_size 0"},
      {R"({"vocab_size": -3})", "vocab_size -3"},
      {R"({"num_hidden_layers": -1})", "num_hidden_layers -1"},
      {R"({"num_attention_heads": 7})", "hidden_size 768 is no multiple of 7 heads"},
      {R"({"hidden_size": 768.5})", "'hidden_size' is of another kind: 768.5"},
      {R"({"hidden_size": "768"})", "'hidden_size' is of another kind: a JSON string"},
      {R"({"hidden_size": 18446744073709551615})", "'hidden_size' is of another kind: 18446744073709551615"},
      {R"({"hidden_act": "quick_gelu", "num_hidden_layers": 0})", "no hidden_act is called 'quick_gelu'"},
      {R"({"hidden_act": null, "model_type": null, "layer_norm_eps": -1})", "layer_norm_eps -1"},
      {R"({"layer_norm_eps": 1e999})", "config.json"},
      {R"({"hidden_dropout_prob": 1.5})", "dropout with probability 1.5"},
      {R"({"attention_probs_dropout_prob": -0.1})", "dropout with probability -0.1"},
      {deep, "'hidden_act' is of another kind: a JSON array"},
      {R"({"hidden_act": )" + std::string(500000, '['), "config.json"}};
  for (const auto& [text, message] : cases) {
    INFO(text.substr(0, 100));
    write(folder / "config.json", text);
    CHECK_THROWS_WITH(nn::BertConfig::load(folder / "config.json"), Contains(message) && Contains("config.json"));
  }
  write(folder / "config.json", R"({"hidden_size": 12, "layer_norm_eps": 1, "hidden_act": "relu"})");
  const nn::BertConfig config = nn::BertConfig::load(folder / "config.json");
  CHECK(config.hidden_size == 12);
  CHECK(config.layer_norm_eps == 1);
  CHECK(config.hidden_act == "relu");
  CHECK(config.vocab_size == 30522);
  CHECK_THROWS_WITH(nn::Bert({.hidden_size = 10, .num_attention_heads = 4}), Contains("no multiple of 4 heads"));
  CHECK_THROWS_WITH(nn::BertLayer({.num_attention_heads = 0}), Contains("num_attention_heads 0"));
  CHECK_THROWS_WITH(nn::BertLayer({.hidden_dropout_prob = std::nan("")}), Contains("dropout"));
}
