#include <cmath>
#include <sstream>

#include "reel/autograd.h"
#include "reel/nn/dropout.h"
#include "reel/nn/embedding.h"
#include "reel/nn/init.h"
#include "reel/nn/linear.h"
#include "reel/nn/rnn.h"
#include "reel/ops.h"
#include "reel/random.h"

namespace reel::nn {
namespace {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  ((out << std::boolalpha) << ... << parts);
  return std::move(out).str();
}

}  // namespace

// ---- Linear ---------------------------------------------------------------------------------------------------------

Linear::Linear(int64_t in, int64_t out, LinearOptions options)
    : in_features(in),
      out_features(out),
      weight(register_parameter("weight", empty({out, in}))),
      bias(options.bias ? register_parameter("bias", empty({out})) : Tensor()) {
  reset_parameters();
}

void Linear::reset_parameters() {
  const double bound = in_features > 0 ? 1 / std::sqrt(in_features) : 0;
  init::uniform_(weight, -bound, bound);
  if (bias.defined()) init::uniform_(bias, -bound, bound);
}

Tensor Linear::forward(const Tensor& x) const { return linear(x, weight, bias); }

std::string Linear::extra_repr() const {
  return text("in_features=", in_features, ", out_features=", out_features, ", bias=", bias.defined());
}

// ---- Embedding ------------------------------------------------------------------------------------------------------

Embedding::Embedding(int64_t num, int64_t dim, EmbeddingOptions given)
    : num_embeddings(num), embedding_dim(dim), options(given), weight(register_parameter("weight", empty({num, dim}))) {
  if (auto& padding = options.padding_idx) {
    REEL_CHECK(*padding >= -num && *padding < num, "Embedding: padding_idx ", *padding, " is out of range for ", num,
               " embeddings");
    if (*padding < 0) *padding += num;
  }
  reset_parameters();
}

void Embedding::reset_parameters() {
  init::normal_(weight);
  if (options.padding_idx) init::zeros_(no_grad([&] { return weight.select(0, *options.padding_idx); }));
}

Tensor Embedding::forward(const Tensor& ids) const {
  const Tensor rows = embedding(weight, ids, options.sparse);
  if (!options.padding_idx) return rows;
  return masked_fill(rows, (ids == *options.padding_idx).unsqueeze(-1), 0);
}

std::string Embedding::extra_repr() const {
  std::string repr = text(num_embeddings, ", ", embedding_dim);
  if (options.padding_idx) repr += text(", padding_idx=", *options.padding_idx);
  if (options.sparse) repr += ", sparse=true";
  return repr;
}

// ---- Dropout --------------------------------------------------------------------------------------------------------

Dropout::Dropout(double probability) : p(probability) {
  REEL_CHECK(p >= 0 && p <= 1, "Dropout: p must be between 0 and 1, got ", p);
}

Tensor Dropout::forward(const Tensor& x) const { return dropout(x, p, is_training()); }
std::string Dropout::extra_repr() const { return text("p=", p); }

// ---- LSTMCell -------------------------------------------------------------------------------------------------------

LSTMCell::LSTMCell(int64_t input, int64_t hidden, LSTMCellOptions options)
    : input_size(input),
      hidden_size(hidden),
      weight_ih(register_parameter("weight_ih", empty({4 * hidden, input}))),
      weight_hh(register_parameter("weight_hh", empty({4 * hidden, hidden}))),
      bias_ih(options.bias ? register_parameter("bias_ih", empty({4 * hidden})) : Tensor()),
      bias_hh(options.bias ? register_parameter("bias_hh", empty({4 * hidden})) : Tensor()) {
  reset_parameters();
}

void LSTMCell::reset_parameters() {
  const double bound = hidden_size > 0 ? 1 / std::sqrt(hidden_size) : 0;
  for (const Tensor& parameter : parameters()) init::uniform_(parameter, -bound, bound);
}

CellState LSTMCell::forward(const Tensor& x, const CellState& state) const {
  REEL_CHECK(x.defined() && x.dim() == 2 && x.size(1) == input_size, "LSTMCell: expected x of shape [n, ", input_size,
             "], got ", x.defined() ? x.shape().to_string() : "an undefined tensor");
  REEL_CHECK(state.h.defined() == state.c.defined(), "LSTMCell: of the state h and c one is undefined, one is not");
  for (const Tensor* part : {&state.h, &state.c})
    REEL_CHECK(!part->defined() || part->shape() == Shape({x.size(0), hidden_size}),
               "LSTMCell: expected a state of shape [", x.size(0), ", ", hidden_size, "], got ", part->shape());
  const Tensor from_x = linear(x, weight_ih, bias_ih);
  if (state.h.defined()) return lstm_cell(from_x + linear(state.h, weight_hh, bias_hh), state.c);
  const Tensor zero = zeros({x.size(0), hidden_size}, {.dtype = x.dtype(), .device = x.device()});
  return lstm_cell(bias_hh.defined() ? from_x + bias_hh : from_x, zero);
}

std::string LSTMCell::extra_repr() const {
  std::string repr = text(input_size, ", ", hidden_size);
  if (!bias_ih.defined()) repr += ", bias=false";
  return repr;
}

}  // namespace reel::nn
