#include "trireme/model/generator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/comm/communicator.h"

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

namespace {

// Stages hold neighbouring units with about equal numbers of elements; every stage has at least one unit.
std::pair<int, int> stage_units(const Model& model, int stage, int num_stages) {
  const int count = static_cast<int>(model.units.size());
  if (num_stages > count)
    throw UsageError(fmt::format("{} pipeline stages for a model of {} units (embedding, blocks, head); use at most {}",
                                 num_stages, count, count));
  std::vector<int64_t> before = {0};  // elements of all units before
  for (const auto& unit : model.units) {
    before.push_back(before.back());
    for (const ParameterSpec& p : unit->parameters()) before.back() += p.numel();
  }
  const auto begin_of = [&](int s) {
    int unit = s;
    while (unit < count - (num_stages - s) && before[unit] * num_stages < before.back() * s) ++unit;
    return s == num_stages ? count : unit;
  };
  return {begin_of(stage), begin_of(stage + 1)};
}

constexpr int64_t kTokensAtOnce = 512;

}  // namespace

Generator::Generator(const ModelConfig& config, const Precision& precision, const FillWeights& fill,
                     const GeneratorRanks& ranks, int64_t capacity)
    : model_(build_model(config, precision, ranks.parallel)), precision_(precision), ranks_(ranks) {
  capacity_ = capacity > 0 ? std::min(capacity, config.longest_generation()) : config.longest_generation();
  std::tie(first_unit_, last_unit_) = stage_units(model_, ranks.stage, ranks.num_stages);
  unit_parameters_ = unit_weights(model_, first_unit_, last_unit_, precision.compute, fill);
  k_cache_.resize(model_.units.size());
  v_cache_.resize(model_.units.size());
  for (int u = first_unit_; u < last_unit_; ++u) {
    const int64_t width = model_.units[u]->cache_width();
    if (width == 0) continue;
    k_cache_[u] = at::zeros({capacity_, width}, at::TensorOptions().dtype(precision.compute));
    v_cache_[u] = at::zeros_like(k_cache_[u]);
  }
}

// Runs `tokens`, which follow the context, through this stage's units. Logits of the last token, or of all.
at::Tensor Generator::feed(std::span<const int64_t> tokens, bool all, Codes codes) {
  const int64_t position = num_tokens();
  const auto count = static_cast<int64_t>(tokens.size());
  const auto options = at::TensorOptions().dtype(precision_.compute);
  const at::Tensor x = at::empty({count, model_.config.hidden_size}, options);
  if (ranks_.stage > 0) ranks_.stages->receive(x, ranks_.stage - 1)->wait();
  const at::Tensor ids = at::tensor(std::vector<int64_t>(tokens.begin(), tokens.end()), at::kLong),
                   logits =
                       is_last_stage() ? at::empty({all ? count : 1, model_.config.vocab_size}, options) : at::Tensor();
  const bool is_given = model_.config.is_free() && (codes == Codes::from_prior || position > 0);
  const at::Tensor latent = is_given ? prior_codes(count) : at::Tensor();
  comm::UnitCommunicators ranks;
  ranks[comm::UnitAxis::tp] = ranks_.tp;
  for (int u = first_unit_; u < last_unit_; ++u)
    model_.units[u]->decode({.parameters = unit_parameters_[u],
                             .tokens = ids,
                             .position = position,
                             .x = x,
                             .k_cache = k_cache_[u],
                             .v_cache = v_cache_[u],
                             .latent = latent,
                             .latent_seed = latent_seed_,
                             .logits = logits,
                             .ranks = ranks});
  if (!is_last_stage()) ranks_.stages->send(x, ranks_.stage + 1)->wait();
  context_.insert(context_.end(), tokens.begin(), tokens.end());
  return logits;
}

// Codes of the next `count` tokens: uniform, by seed and position, so that all ranks draw the same.
at::Tensor Generator::prior_codes(int64_t count) const {
  const int64_t bits = model_.config.free.latent_bits;
  const uint64_t mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  std::vector<int64_t> codes;
  for (int64_t i = 0; i < count; ++i)
    codes.push_back(fixed_latent_.value_or(
        static_cast<int64_t>(base::mix_key(latent_seed_, static_cast<uint64_t>(num_tokens() + i)) & mask)));
  return at::tensor(codes, at::kLong);
}

void Generator::fix_latent(int64_t code) {
  const model::ModelConfig& c = model_.config;
  if (!c.is_free())
    throw UsageError("free.latent is the code of a Free Transformer's tokens, and this model is none; leave it out");
  if (code < 0 || (c.free.latent_bits < 63 && code >> c.free.latent_bits != 0))
    throw UsageError(fmt::format("free.latent is {}, and a code of {} bits is from 0 to 2^{} - 1", code,
                                 c.free.latent_bits, c.free.latent_bits));
  fixed_latent_ = code;
}

void Generator::seed_latent(uint64_t seed) {
  if (!model_.config.is_free())
    throw UsageError(
        "free.latent_seed draws the codes of a Free Transformer's tokens, and this model is none; leave it out");
  latent_seed_ = seed;
  has_own_latent_seed_ = true;
}

// An encoder sees a whole prompt.
int64_t Generator::tokens_at_once() const { return model_.config.is_free() ? capacity_ : kTokensAtOnce; }

void Generator::check(std::span<const int64_t> tokens) const {
  for (const int64_t token : tokens)
    if (token < 0 || token >= model_.config.vocab_size)
      throw UsageError(fmt::format("token {} is outside the vocabulary of {}", token, model_.config.vocab_size));
}

at::Tensor Generator::all_logits(std::span<const int64_t> tokens) {
  check(tokens);
  const auto count = static_cast<int64_t>(tokens.size());
  if (num_tokens() + count > capacity_)
    throw UsageError(fmt::format("{} tokens behind {} are more than the {} that the model's cache holds", count,
                                 num_tokens(), capacity_));
  std::vector<at::Tensor> parts;
  for (int64_t at = 0; at < count; at += kTokensAtOnce) {
    const int64_t size = std::min(kTokensAtOnce, count - at);
    parts.push_back(feed(tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(size)), true, Codes::from_prior));
  }
  return is_last_stage() && !parts.empty() ? at::cat(parts) : at::Tensor();
}

at::Tensor Generator::next_logits(std::span<const int64_t> tokens) {
  check(tokens);
  std::vector<int64_t> waiting(tokens.begin(), tokens.end());
  at::Tensor logits;
  for (size_t at = 0; at < waiting.size();) {
    if (num_tokens() == capacity_) {
      const std::vector<int64_t> newest(context_.end() - capacity_ / 2, context_.end());
      waiting.insert(waiting.begin() + static_cast<int64_t>(at), newest.begin(), newest.end());
      reset();
    }
    const int64_t count =
        std::min({tokens_at_once(), static_cast<int64_t>(waiting.size() - at), capacity_ - num_tokens()});
    logits = feed(std::span(waiting).subspan(at, static_cast<size_t>(count)), false, Codes::from_encoder);
    at += static_cast<size_t>(count);
  }
  return logits.defined() ? logits[0] : logits;
}

// The ranks of the last stage draw the same token and broadcast it.
int64_t Generator::draw(const at::Tensor& logits, const SamplingOptions& options, std::mt19937_64& random) {
  const at::Tensor token = at::zeros({1}, at::kLong);
  if (is_last_stage()) token.fill_(sample_token(logits, options, random));
  if (ranks_.num_stages > 1) ranks_.stages->broadcast(token, ranks_.num_stages - 1)->wait();
  return token.item<int64_t>();
}

void Generator::generate(std::span<const int64_t> prompt, int64_t max_new_tokens, const SamplingOptions& options,
                         const std::function<bool(int64_t)>& emit) {
  if (prompt.empty()) throw UsageError("the prompt is empty: give at least one token to start from");
  std::mt19937_64 random(options.seed);
  if (!has_own_latent_seed_) latent_seed_ = options.seed;
  at::Tensor logits = next_logits(prompt);
  for (int64_t i = 0; i < max_new_tokens; ++i) {
    const int64_t token = draw(logits, options, random);
    if (!emit(token)) return;
    if (i + 1 < max_new_tokens) logits = next_logits(token);
  }
}

}  // namespace trireme::model
