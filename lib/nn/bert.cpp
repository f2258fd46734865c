#include "reel/nn/bert.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "lib/io/json.h"
#include "reel/io/safetensors.h"
#include "reel/nn/init.h"
#include "reel/ops.h"

namespace reel::nn {
namespace {

/// An empty function if there is none of that name.
std::function<Tensor(const Tensor&)> activation_of(const std::string& name) {
  if (name == "gelu") return [](const Tensor& x) { return gelu(x); };
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return [](const Tensor& x) { return gelu_tanh(x); };
  if (name == "relu") return [](const Tensor& x) { return relu(x); };
  if (name == "silu") return [](const Tensor& x) { return silu(x); };
  return {};
}

/// The config, if there is such a Bert. `name` is where it comes from.
const BertConfig& checked(const BertConfig& c, const std::string& name = "Bert") {
  REEL_CHECK(std::min({c.vocab_size, c.hidden_size, c.num_attention_heads, c.intermediate_size,
                       c.max_position_embeddings, c.type_vocab_size}) > 0 &&
                 c.num_hidden_layers >= 0,
             name, ": sizes are positive, got vocab_size ", c.vocab_size, ", hidden_size ", c.hidden_size,
             ", num_hidden_layers ", c.num_hidden_layers, ", num_attention_heads ", c.num_attention_heads,
             ", intermediate_size ", c.intermediate_size, ", max_position_embeddings ", c.max_position_embeddings,
             ", type_vocab_size ", c.type_vocab_size);
  REEL_CHECK(c.hidden_size % c.num_attention_heads == 0, name, ": hidden_size ", c.hidden_size, " is no multiple of ",
             c.num_attention_heads, " heads");
  for (const double p : {c.hidden_dropout_prob, c.attention_probs_dropout_prob})
    REEL_CHECK(p >= 0 && p <= 1, name, ": dropout with probability ", p);
  REEL_CHECK(c.layer_norm_eps >= 0 && std::isfinite(c.layer_norm_eps), name, ": layer_norm_eps ", c.layer_norm_eps);
  REEL_CHECK(activation_of(c.hidden_act), name, ": no hidden_act is called '", c.hidden_act,
             "'; gelu, gelu_new, gelu_pytorch_tanh, relu, silu are");
  return c;
}

/// The parameters of all but the pooler; a double, since a file may say anything.
double count_parameters(const BertConfig& c) {
  const auto h = static_cast<double>(c.hidden_size), wide = static_cast<double>(c.intermediate_size);
  const auto rows = static_cast<double>(c.vocab_size) + static_cast<double>(c.max_position_embeddings) +
                    static_cast<double>(c.type_vocab_size);
  return rows * h + 2 * h + static_cast<double>(c.num_hidden_layers) * (4 * h * h + 2 * h * wide + 9 * h + wide);
}

}  // namespace

BertConfig BertConfig::load(const std::filesystem::path& path) {
  const io::JsonObject json(path);
  const auto expect = [&](const char* key, const std::string& value) {
    const std::string found = json.value(key, value);
    REEL_CHECK(found == value, path.string(), ": '", key, "' is ", found, "; Bert's is ", value);
  };
  expect("model_type", "bert"), expect("position_embedding_type", "absolute");
  REEL_CHECK(!json.value("is_decoder", false), path.string(), ": Bert is no decoder");
  BertConfig c;
  const auto read = [&](const char* key, auto& value) { value = json.value(key, value); };
  read("vocab_size", c.vocab_size), read("hidden_size", c.hidden_size);
  read("num_hidden_layers", c.num_hidden_layers), read("num_attention_heads", c.num_attention_heads);
  read("intermediate_size", c.intermediate_size), read("max_position_embeddings", c.max_position_embeddings);
  read("type_vocab_size", c.type_vocab_size), read("hidden_act", c.hidden_act);
  read("hidden_dropout_prob", c.hidden_dropout_prob), read("layer_norm_eps", c.layer_norm_eps);
  read("attention_probs_dropout_prob", c.attention_probs_dropout_prob);
  return checked(c, path.string());
}

// ---- a block --------------------------------------------------------------------------------------------------------

BertLayer::BertLayer(const BertConfig& c)
    : heads_(checked(c).num_attention_heads),
      attention_dropout_(c.attention_probs_dropout_prob),
      activation_(activation_of(c.hidden_act)),
      query_(self_, "query", c.hidden_size, c.hidden_size),
      key_(self_, "key", c.hidden_size, c.hidden_size),
      value_(self_, "value", c.hidden_size, c.hidden_size),
      attended_dense_(attended_, "dense", c.hidden_size, c.hidden_size),
      intermediate_dense_(intermediate_, "dense", c.hidden_size, c.intermediate_size),
      output_dense_(output_, "dense", c.intermediate_size, c.hidden_size),
      attended_norm_(attended_, "LayerNorm", c.hidden_size, {.eps = c.layer_norm_eps}),
      output_norm_(output_, "LayerNorm", c.hidden_size, {.eps = c.layer_norm_eps}),
      dropout_(*this, "dropout", c.hidden_dropout_prob) {}

Ragged BertLayer::forward(const Ragged& x) const {
  const Tensor& rows = x.values;
  const int64_t n = rows.size(0), size = rows.size(1);
  const auto by_heads = [&](const Linear& f) { return Ragged{f(rows).view({n, heads_, size / heads_}), x.lengths}; };
  const Ragged seen = scaled_dot_product_attention(by_heads(query_), by_heads(key_), by_heads(value_),
                                                   {.dropout = is_training() ? attention_dropout_ : 0});
  const Tensor y = attended_norm_(rows + dropout_(attended_dense_(seen.values.view({n, size}))));
  return {output_norm_(y + dropout_(output_dense_(activation_(intermediate_dense_(y))))), x.lengths};
}

// ---- the encoder ----------------------------------------------------------------------------------------------------

Bert::Bert(const BertConfig& given)
    : config(checked(given)),
      words_(embeddings_, "word_embeddings", config.vocab_size, config.hidden_size),
      positions_(embeddings_, "position_embeddings", config.max_position_embeddings, config.hidden_size),
      types_(embeddings_, "token_type_embeddings", config.type_vocab_size, config.hidden_size),
      norm_(embeddings_, "LayerNorm", config.hidden_size, {.eps = config.layer_norm_eps}),
      dropout_(*this, "dropout", config.hidden_dropout_prob) {
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) layers_.emplace(config);
  if (config.pooler) {
    pooling_.emplace(*this, "pooler");
    pooler_.emplace(*pooling_, "dense", config.hidden_size, config.hidden_size);
  }
  reset_parameters();
}

void Bert::reset_parameters() {
  for (const auto& [name, parameter] : named_parameters())
    if (parameter.dim() == 2)
      init::normal_(parameter, 0, 0.02);
    else if (name.ends_with("bias"))
      init::zeros_(parameter);
}

Bert Bert::load(const std::filesystem::path& folder) {
  BertConfig config = BertConfig::load(folder / "config.json");
  auto file = folder / "model.safetensors";
  if (const auto index = folder / "model.safetensors.index.json";
      !std::filesystem::exists(file) && std::filesystem::exists(index))
    file = index;  // a model in several files
  const auto path_of = [](std::string_view name) {
    if (name.starts_with("bert.")) name.remove_prefix(5);
    return name;
  };
  const auto keep = [&](std::string_view name) {
    name = path_of(name);
    return (name.starts_with("embeddings.") && name != "embeddings.position_ids") || name.starts_with("encoder.") ||
           name.starts_with("pooler.");
  };
  const auto rename = [&](std::string_view given) {
    std::string name(path_of(given));
    // The first BERT's files have these names, which TensorFlow had given.
    for (const auto& [old, now] :
         {std::pair{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}})
      if (name.ends_with(old)) name.replace(name.size() - std::string_view(old).size(), std::string::npos, now);
    return name;
  };
  const StateDict dict = io::load(file, {.keep = keep, .rename = rename});
  double found = 0;
  config.pooler = false;
  for (const auto& [name, tensor] : dict) {
    found += static_cast<double>(tensor.numel());
    config.pooler = config.pooler || name.starts_with("pooler.");
  }
  // Before anything of that size is allocated.
  REEL_CHECK(found >= count_parameters(config), file.string(), ": ", static_cast<int64_t>(found),
             " numbers, but config.json describes a Bert of more");
  Bert bert(config);
  try {
    bert.load_state_dict(dict);
  } catch (const OutOfMemoryError&) {
    throw;
  } catch (const Error& error) {
    detail::fail(file.string(), ": ", error.what());
  }
  bert.eval();
  return bert;
}

Ragged Bert::forward(const Ragged& ids, const Tensor& token_types) const {
  const Tensor& numbers = detail::rows_of("Bert", ids);
  const auto& lengths = ids.lengths;
  REEL_CHECK(numbers.dim() == 1, "Bert: ids of shape ", numbers.shape(), ", not [", lengths->total(), "]");
  REEL_CHECK(lengths->longest() <= config.max_position_embeddings, "Bert: a sequence of ", lengths->longest(),
             " word pieces; it takes ", config.max_position_embeddings);
  std::vector<int64_t> places;
  for (int64_t i = 0; i < lengths->size(); ++i)
    for (int64_t at = 0; at < (*lengths)[i]; ++at) places.push_back(at);
  const Tensor types = token_types.defined() ? token_types : zeros_like(numbers);
  REEL_CHECK(types.shape() == numbers.shape(), "Bert: token types of shape ", types.shape(), " for ids of shape ",
             numbers.shape());
  const Tensor all = words_(numbers) + types_(types) + positions_(tensor(places, {.device = numbers.device()}));
  Ragged x{dropout_(norm_(all)), lengths};
  for (const BertLayer& layer : layers_) x = layer(x);
  return x;
}

Tensor Bert::embed(const Ragged& ids, BertPooling pooling) const {
  const Ragged hidden = (*this)(ids);
  if (pooling == BertPooling::kMean) return mean(hidden);
  const Lengths& lengths = *hidden.lengths;
  for (int64_t i = 0; i < lengths.size(); ++i) REEL_CHECK(lengths[i] > 0, "Bert: sequence ", i, " is empty");
  const auto starts = lengths.offsets().first(static_cast<size_t>(lengths.size()));
  const Tensor first = index_select(
      hidden.values, 0, tensor(std::vector(starts.begin(), starts.end()), {.device = hidden.values.device()}));
  if (pooling == BertPooling::kCls) return first;
  REEL_CHECK(pooler_, "Bert: this model has no pooler");
  return tanh((*pooler_)(first));
}

}  // namespace reel::nn
