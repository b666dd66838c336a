#include "trireme/formats/gguf/config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trireme::formats {
namespace {

double wavelength(size_t i, size_t num, double theta) {
  return 2 * std::numbers::pi * std::pow(theta, static_cast<double>(i) / static_cast<double>(num));
}

bool matches(const Llama3Scaling& scaling, std::span<const float> divisors, double theta) {
  const std::vector<float> expected = llama3_divisors(scaling, 2 * std::ssize(divisors), theta);
  for (size_t i = 0; i < divisors.size(); ++i)
    if (!(std::abs(expected[i] - divisors[i]) <= 1e-4f * std::abs(expected[i]))) return false;
  return true;
}

}  // namespace

std::vector<float> llama3_divisors(const Llama3Scaling& scaling, int64_t head_dim, double theta) {
  std::vector<float> divisors(head_dim / 2);
  const double original = scaling.original_max_position_embeddings;
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double length = wavelength(i, divisors.size(), theta);
    double divisor = scaling.factor;
    if (length < original / scaling.high_freq_factor) {
      divisor = 1;
    } else if (length <= original / scaling.low_freq_factor) {
      const double smooth =
          (original / length - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
      divisor = 1 / ((1 - smooth) / scaling.factor + smooth);
    }
    divisors[i] = static_cast<float>(divisor);
  }
  return divisors;
}

std::optional<Llama3Scaling> find_llama3_scaling(std::span<const float> divisors, double theta) {
  if (divisors.empty() || !(divisors.back() >= 1) || !(theta > 0)) return std::nullopt;
  Llama3Scaling scaling{.factor = divisors.back()};
  // First the bounds of published models: if no frequency lies between the bounds, several bounds give the same table.
  for (const int power : {13, 12, 11, 14, 15, 16, 17, 10, 9, 8, 7, 6, 5}) {
    scaling.original_max_position_embeddings = std::exp2(power);
    if (matches(scaling, divisors, theta)) return scaling;
  }
  // Between the bounds 1 / divisor is linear in 1 / wavelength: two entries give the line, and it gives the bounds.
  std::vector<size_t> between;
  for (size_t i = 0; i < divisors.size(); ++i)
    if (divisors[i] > 1 && divisors[i] < divisors.back()) between.push_back(i);
  if (between.size() < 2) return std::nullopt;
  const auto smooth = [&](size_t i) { return (1 / divisors[i] - 1 / scaling.factor) / (1 - 1 / scaling.factor); };
  const size_t a = between.front(), b = between.back();
  const double slope =
      (smooth(a) - smooth(b)) / (1 / wavelength(a, divisors.size(), theta) - 1 / wavelength(b, divisors.size(), theta));
  const double at_zero = smooth(a) - slope / wavelength(a, divisors.size(), theta);  // -low / (high - low)
  scaling.high_freq_factor = 1 - 1 / at_zero;
  scaling.original_max_position_embeddings = std::round(slope * (scaling.high_freq_factor - 1));
  return matches(scaling, divisors, theta) ? std::optional(scaling) : std::nullopt;
}

}  // namespace trireme::formats
