#include "trireme/model/generator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/model/decoder_block.h"
#include "trireme/model/embedding.h"
#include "trireme/model/head.h"
#include "trireme/ops/ops.h"

namespace trireme::model {

int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, std::mt19937_64& random) {
  const at::Tensor wide = logits.to(at::kDouble).contiguous();
  const double* values = wide.data_ptr<double>();
  std::vector<int64_t> order(wide.numel());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return values[a] > values[b]; });
  if (!std::isfinite(values[order[0]])) throw ShapeError("the logits are not finite: the model's weights are damaged");
  if (options.temperature <= 0) return order[0];
  size_t kept = order.size();
  if (options.top_k) kept = std::min(kept, static_cast<size_t>(std::max<int64_t>(1, *options.top_k)));
  std::vector<double> weights(kept);
  for (size_t i = 0; i < kept; ++i) weights[i] = std::exp((values[order[i]] - values[order[0]]) / options.temperature);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double reached = 0;
  for (size_t i = 0; i < kept; ++i) {
    reached += weights[i];
    if (reached >= options.top_p * total) kept = i + 1;
  }
  weights.resize(kept);
  double u = std::generate_canonical<double, 53>(random) * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < kept; ++i) {
    u -= weights[i];
    if (u < 0) return order[i];
  }
  return order[kept - 1];
}

Generator::Generator(const ModelConfig& config, const Precision& precision, const Fill& fill)
    : model_(build_model(config, precision)), precision_(precision) {
  const auto options = at::TensorOptions().dtype(precision.compute);
  for (const ParameterGroup& group : model_.groups) {
    std::vector<at::Tensor> tensors;
    // Joined parameters are one matrix: their parts are views of one tensor.
    for (size_t i = 0; i < group.parameters.size();) {
      size_t end = i + 1;
      int64_t rows = group.parameters[i].shape[0];
      while (end < group.parameters.size() && group.parameters[end].joined) rows += group.parameters[end++].shape[0];
      std::vector<int64_t> shape = group.parameters[i].shape;
      shape[0] = rows;
      const at::Tensor whole = at::empty(shape, options);
      for (int64_t row = 0; i < end; row += group.parameters[i].shape[0], ++i) {
        tensors.push_back(whole.narrow(0, row, group.parameters[i].shape[0]));
        fill(group.parameters[i], tensors.back());
      }
    }
    group_parameters_.push_back(std::move(tensors));
  }
  for (const auto& places : model_.places) {
    std::vector<at::Tensor> tensors;
    for (const ParameterPlace& p : places) tensors.push_back(group_parameters_[p.group][p.index]);
    unit_parameters_.push_back(std::move(tensors));
  }
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    k_cache_.push_back(
        at::zeros({1, config.max_position_embeddings, config.num_key_value_heads * config.head_dim}, options));
    v_cache_.push_back(at::zeros_like(k_cache_.back()));
  }
}

void Generator::reset() { context_.clear(); }

at::Tensor Generator::logits_at(int64_t token, int64_t position) {
  const ModelConfig& c = model_.config;
  const auto options = at::TensorOptions().dtype(precision_.compute);
  const at::Tensor x = at::empty({1, c.hidden_size}, options), id = at::full({1}, token, at::kLong);
  static_cast<const EmbeddingUnit&>(*model_.units.front()).look_up(x, id, position, unit_parameters_.front());
  for (int64_t i = 0; i < c.num_hidden_layers; ++i)
    static_cast<const DecoderBlock&>(*model_.units[i + 1])
        .decode(x, unit_parameters_[i + 1], k_cache_[i], v_cache_[i], position);
  const at::Tensor out = at::empty({1, c.vocab_size}, options);
  static_cast<const HeadUnit&>(*model_.units.back()).logits(out, x, unit_parameters_.back());
  return out[0];
}

at::Tensor Generator::next_logits(int64_t token) {
  const int64_t capacity = model_.config.max_position_embeddings;
  if (token < 0 || token >= model_.config.vocab_size)
    throw UsageError(fmt::format("token {} is outside the vocabulary of {}", token, model_.config.vocab_size));
  if (static_cast<int64_t>(context_.size()) == capacity) {
    context_.erase(context_.begin(), context_.end() - capacity / 2);
    for (size_t i = 0; i < context_.size(); ++i) logits_at(context_[i], static_cast<int64_t>(i));
  }
  context_.push_back(token);
  return logits_at(token, static_cast<int64_t>(context_.size()) - 1);
}

void Generator::generate(const std::vector<int64_t>& prompt, int64_t max_new_tokens, const SamplingOptions& options,
                         const std::function<bool(int64_t)>& emit) {
  if (prompt.empty()) throw UsageError("the prompt is empty: give at least one token to start from");
  std::mt19937_64 random(options.seed);
  at::Tensor logits;
  for (int64_t token : prompt) logits = next_logits(token);
  for (int64_t i = 0; i < max_new_tokens; ++i) {
    const int64_t token = sample_token(logits, options, random);
    if (!emit(token)) return;
    if (i + 1 < max_new_tokens) logits = next_logits(token);
  }
}

}  // namespace trireme::model
