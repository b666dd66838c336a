#include "trireme/ops/blocks/codes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace trireme::ops {
namespace {

constexpr FourBitCode kNf4 = {-1.0f,
                              -0.6961928009986877f,
                              -0.5250730514526367f,
                              -0.39491748809814453f,
                              -0.28444138169288635f,
                              -0.18477343022823334f,
                              -0.09105003625154495f,
                              0.0f,
                              0.07958029955625534f,
                              0.16093020141124725f,
                              0.24611230194568634f,
                              0.33791524171829224f,
                              0.44070982933044434f,
                              0.5626170039176941f,
                              0.7229568362236023f,
                              1.0f};
// A sign, two bits of exponent and one of mantissa, over the largest.
constexpr FourBitCode kFp4 = {0.0f,       0.0625f / 12, 8.0f / 12,  12.0f / 12,    4.0f / 12,  6.0f / 12,
                              2.0f / 12,  3.0f / 12,    0.0f,       -0.0625f / 12, -8.0f / 12, -12.0f / 12,
                              -4.0f / 12, -6.0f / 12,   -2.0f / 12, -3.0f / 12};

constexpr FourBitCode kWholeNumbers = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};

FourBitSearch search_of(const FourBitCode& code) {
  FourBitSearch search{};
  std::iota(search.nibbles.begin(), search.nibbles.end(), uint8_t{0});
  std::ranges::stable_sort(search.nibbles, {}, [&](uint8_t nibble) { return code[nibble]; });
  for (size_t i = 0; i < 15; ++i) search.bounds[i] = (code[search.nibbles[i]] + code[search.nibbles[i + 1]]) / 2;
  return search;
}

// Each of seven exponents has twice as many fractions as the one before.
EightBitCode make_dynamic(bool is_signed) {
  constexpr double kScales[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
  std::vector<float> values = {0, 1};
  for (int i = 0; i < 7; ++i) {
    const int64_t fractions = (int64_t{1} << (is_signed ? i : i + 1)) + 1;
    const at::Tensor ends = at::linspace(0.1, 1, fractions, at::kFloat);
    const at::Tensor means = (ends.slice(0, 0, -1) + ends.slice(0, 1)) / 2.0 * kScales[i];
    for (int64_t f = 0; f + 1 < fractions; ++f) {
      values.push_back(means[f].item<float>());
      if (is_signed) values.push_back(-values.back());
    }
  }
  std::ranges::sort(values);
  EightBitCode code{};
  std::ranges::copy(values, code.begin());
  return code;
}

constexpr int kPlaces = 65536;

std::vector<uint8_t> make_table(const EightBitCode& code) {
  std::vector<uint8_t> table(kPlaces);
  size_t at = 0;
  for (int i = 0; i < kPlaces; ++i) {
    const float value = -1.0f + 2.0f * static_cast<float>(i) / (kPlaces - 1);
    while (at < 255 && 0.5f * (code[at] + code[at + 1]) < value) ++at;
    table[static_cast<size_t>(i)] = static_cast<uint8_t>(at);
  }
  return table;
}

}  // namespace

const FourBitCode& four_bit_code(base::BlockFormat format) {
  if (format == base::BlockFormat::q4_0) return kWholeNumbers;
  return base::traits_of(format).code == "nf4" ? kNf4 : kFp4;
}

const FourBitSearch& four_bit_search(base::BlockFormat format) {
  static const FourBitSearch nf4 = search_of(kNf4), fp4 = search_of(kFp4);
  return base::traits_of(format).code == "nf4" ? nf4 : fp4;
}

const EightBitCode& dynamic_code(bool is_signed) {
  static const EightBitCode both_signs = make_dynamic(true), positive = make_dynamic(false);
  return is_signed ? both_signs : positive;
}

uint8_t dynamic_byte(bool is_signed, float value) {
  static const std::vector<uint8_t> both_signs = make_table(dynamic_code(true)),
                                    positive = make_table(dynamic_code(false));
  // Rounded once to float32, as a fused multiply-add: the product and the sum are exact in float64.
  const float bounded = value < 1 ? std::max(value, -1.0f) : 1.0f;  // NaN has no place
  const auto place = static_cast<float>(double((bounded + 1) * 0.5f) * (kPlaces - 1) + 0.5);
  return (is_signed ? both_signs : positive)[static_cast<size_t>(place)];
}

}  // namespace trireme::ops
