#include "trireme/model/rotary_frequencies.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::model {
namespace {

void require(bool holds, const char* name, double value, const char* rule) {
  if (!holds) throw UsageError(fmt::format("rotary positions: {} is {}, it must be {}", name, value, rule));
}

void check(double theta, int64_t head_dim, const RopeScaling& s) {
  using Type = RopeScaling::Type;
  require(head_dim >= 2 && head_dim % 2 == 0, "head_dim", static_cast<double>(head_dim),
          "even: elements turn in pairs");
  require(std::isfinite(theta) && theta > 1, "rope_theta", theta, "above 1");
  if (s.type == Type::none) return;
  const bool has_own = s.type == Type::longrope;  // a factor for each pair; the one beside them scales attention alone
  require(std::isfinite(s.factor) && (has_own ? s.factor > 0 : s.factor >= 1), "factor", s.factor,
          has_own ? "above 0" : "at least 1");
  if (s.type == Type::linear) return;
  require(s.original_max_position_embeddings >= 1, "original_max_position_embeddings",
          s.original_max_position_embeddings, "the number of positions before scaling");
  if (s.type == Type::dynamic) {
    require(head_dim >= 4, "head_dim", static_cast<double>(head_dim), "at least 4 with dynamic scaling");
  } else if (s.type == Type::longrope) {
    for (const std::vector<double>* factors : {&s.short_factor, &s.long_factor}) {
      require(std::ssize(*factors) == head_dim / 2, "the length of short_factor or long_factor",
              static_cast<double>(factors->size()), "half the width of what is rotated of a head");
      for (const double f : *factors) require(std::isfinite(f) && f > 0, "a factor of longrope", f, "above 0");
    }
  } else if (s.type == Type::llama3) {
    require(s.low_freq_factor > 0, "low_freq_factor", s.low_freq_factor, "above 0");
    require(s.high_freq_factor > s.low_freq_factor, "high_freq_factor", s.high_freq_factor, "above low_freq_factor");
  } else {
    require(s.beta_slow > 0, "beta_slow", s.beta_slow, "above 0");
    require(s.beta_fast >= s.beta_slow, "beta_fast", s.beta_fast, "at least beta_slow");
  }
}

/// theta^(2i/head_dim), float32.
at::Tensor wavelengths(double theta, int64_t head_dim) {
  const at::Tensor i = at::arange(0, head_dim, 2, at::kLong).to(at::kFloat);
  return at::pow(at::Scalar(theta), i / static_cast<double>(head_dim));
}

/// Long waves are stretched, short ones are not, those in between partly.
at::Tensor llama3(const at::Tensor& frequency, const RopeScaling& s) {
  const double original = s.original_max_position_embeddings;
  const double long_wave = original / s.low_freq_factor, short_wave = original / s.high_freq_factor;
  const at::Tensor wave = at::reciprocal(frequency) * (2 * std::numbers::pi);
  const at::Tensor scaled = at::where(wave > long_wave, frequency / s.factor, frequency);
  const at::Tensor smooth =
      (at::reciprocal(wave) * original - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  const at::Tensor between = (1 - smooth) * scaled / s.factor + smooth * scaled;
  return at::where(at::logical_and(wave >= short_wave, wave <= long_wave), between, scaled);
}

/// Dimensions that turn often in the original context are unchanged, those that turn rarely are stretched; a ramp lies
/// between.
at::Tensor yarn(double theta, int64_t head_dim, const RopeScaling& s) {
  const double dim = static_cast<double>(head_dim);
  const auto dimension_of = [&](double turns) {
    return dim * std::log(s.original_max_position_embeddings / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
  };
  double low = dimension_of(s.beta_fast), high = dimension_of(s.beta_slow);
  if (s.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0), high = std::min(high, dim - 1);
  if (low == high) high += 0.001;
  const at::Tensor ramp = at::clamp((at::arange(head_dim / 2, at::kFloat) - low) / (high - low), 0, 1);
  const at::Tensor wave = wavelengths(theta, head_dim), kept = 1 - ramp;
  return at::reciprocal(s.factor * wave) * (1 - kept) + at::reciprocal(wave) * kept;
}

/// A larger theta for sequences that are longer than the model's positions.
at::Tensor dynamic(double theta, int64_t head_dim, const RopeScaling& s, int64_t sequence) {
  const double positions = s.original_max_position_embeddings, dim = static_cast<double>(head_dim);
  if (static_cast<double>(sequence) <= positions) {
    const double base = theta * std::pow(s.factor - (s.factor - 1), dim / (dim - 2));
    return at::reciprocal(wavelengths(base, head_dim));
  }
  // transformers computes this theta in float32, from the sequence's length as a tensor.
  const at::Tensor stretch = at::scalar_tensor(sequence, at::kLong) * s.factor / positions - (s.factor - 1);
  const at::Tensor base = at::pow(stretch, dim / (dim - 2)) * theta;
  const at::Tensor i = at::arange(0, head_dim, 2, at::kLong).to(at::kFloat);
  return at::reciprocal(at::pow(base, i / dim));
}

at::Tensor longrope(double theta, int64_t head_dim, const RopeScaling& s, int64_t sequence) {
  const bool is_long = static_cast<double>(sequence) > s.original_max_position_embeddings;
  const std::vector<double>& factors = is_long ? s.long_factor : s.short_factor;
  at::Tensor divisors = at::empty({std::ssize(factors)}, at::kFloat);
  for (size_t i = 0; i < factors.size(); ++i) divisors.mutable_data_ptr<float>()[i] = static_cast<float>(factors[i]);
  return at::reciprocal(divisors * wavelengths(theta, head_dim));
}

at::Tensor frequencies(double theta, int64_t head_dim, const RopeScaling& s, int64_t sequence) {
  if (s.type == RopeScaling::Type::yarn) return yarn(theta, head_dim, s);
  if (s.type == RopeScaling::Type::dynamic) return dynamic(theta, head_dim, s, sequence);
  if (s.type == RopeScaling::Type::longrope) return longrope(theta, head_dim, s, sequence);
  const at::Tensor frequency = at::reciprocal(wavelengths(theta, head_dim));
  if (s.type == RopeScaling::Type::linear) return frequency / s.factor;
  return s.type == RopeScaling::Type::llama3 ? llama3(frequency, s) : frequency;
}

double growth(double factor, double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; }

}  // namespace

std::vector<double> rotary_frequencies(double theta, int64_t head_dim, const RopeScaling& scaling, int64_t sequence) {
  check(theta, head_dim, scaling);
  const at::Tensor all = frequencies(theta, head_dim, scaling, sequence);
  const float* first = all.data_ptr<float>();
  return {first, first + all.numel()};
}

double rotary_attention_factor(const RopeScaling& s) {
  const bool is_longrope = s.type == RopeScaling::Type::longrope;
  if (s.type != RopeScaling::Type::yarn && !is_longrope) return 1;
  if (s.attention_factor) return *s.attention_factor;
  if (is_longrope)
    return s.factor <= 1 ? 1 : std::sqrt(1 + std::log(s.factor) / std::log(s.original_max_position_embeddings));
  if (s.mscale != 0 && s.mscale_all_dim != 0) return growth(s.factor, s.mscale) / growth(s.factor, s.mscale_all_dim);
  return growth(s.factor, 1);
}

}  // namespace trireme::model
