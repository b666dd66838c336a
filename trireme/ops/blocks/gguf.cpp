#include "trireme/ops/blocks/gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/ops/storage.h"

namespace trireme::ops {
namespace {

constexpr int64_t kValues = 32;

// Products, quotients and sums are rounded to float32 one by one, as there.
float inverse_of(float scale) {
  const float inverse = 1.0f / scale;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

/// Halves are rounded away from zero.
float rounded(float value) {
  const float size = std::abs(value), whole = std::floor(size), up = whole + std::floor(2 * (size - whole));
  return value < 0 ? -up : up;
}

float half_of(float scale) { return widen(narrow<float16>(scale)); }

/// Of the values, which are finite, the first with the largest magnitude.
float quantize_q8_0(float largest, const float* values, uint8_t* codes) {
  const float scale = std::abs(largest) / 127.0f, inverse = inverse_of(scale);
  for (int64_t i = 0; i < kValues; ++i)
    codes[i] = std::bit_cast<uint8_t>(static_cast<int8_t>(rounded(values[i] * inverse)));
  return half_of(scale);
}

float quantize_q4_0(float largest, const float* values, uint8_t* codes) {
  const float scale = largest / -8.0f, inverse = inverse_of(scale);
  for (int64_t i = 0; i < kValues; i += 2) {
    int pair = 0;
    for (int64_t j = i; j < i + 2; ++j) {
      const float product = values[j] * inverse;
      pair = pair << 4 | std::min(15, static_cast<int>(product + 8.5f));
    }
    codes[i / 2] = static_cast<uint8_t>(pair);
  }
  return half_of(scale);
}

}  // namespace

float quantize_gguf_block(base::BlockFormat format, const float* values, uint8_t* codes) {
  float largest = values[0];
  for (int64_t i = 0; i < kValues; ++i) {
    if (!std::isfinite(values[i])) return std::numeric_limits<float>::infinity();
    if (std::abs(values[i]) > std::abs(largest)) largest = values[i];
  }
  return format == base::BlockFormat::q8_0 ? quantize_q8_0(largest, values, codes)
                                           : quantize_q4_0(largest, values, codes);
}

void write_gguf_blocks(const Quantized& m, int64_t first, int64_t count, std::byte* to) {
  const int bits = base::traits_of(m.format).bits;
  const int64_t code_bytes = kValues * bits / 8;
  for (int64_t block = first; block < first + count; ++block) {
    const uint16_t scale = narrow<float16>(m.scales[static_cast<size_t>(block)]).bits;
    std::memcpy(to, &scale, 2);
    const uint8_t* codes = m.codes.data() + block * code_bytes;
    if (bits == 8) {
      std::memcpy(to + 2, codes, static_cast<size_t>(code_bytes));
    } else {
      const auto nibble = [&](int64_t i) { return i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15; };
      for (int64_t i = 0; i < kValues / 2; ++i)
        to[2 + i] = static_cast<std::byte>(nibble(i) | nibble(i + kValues / 2) << 4);
    }
    to += 2 + code_bytes;
  }
}

Quantized read_gguf_blocks(base::BlockFormat format, std::span<const std::byte> blocks) {
  const int bits = base::traits_of(format).bits;
  const int64_t code_bytes = kValues * bits / 8, count = std::ssize(blocks) / (2 + code_bytes);
  Quantized m{.format = format, .elements = count * kValues};
  m.codes.resize(static_cast<size_t>(count * code_bytes));
  m.scales.resize(static_cast<size_t>(count));
  const std::byte* from = blocks.data();
  for (int64_t block = 0; block < count; ++block, from += 2 + code_bytes) {
    float16 scale{};
    std::memcpy(&scale.bits, from, 2);
    m.scales[static_cast<size_t>(block)] = widen(scale);
    if (!std::isfinite(widen(scale)))
      throw ShapeError("a scale is infinite or not a number, which spoils its block of 32 values");
    uint8_t* codes = m.codes.data() + block * code_bytes;
    if (bits == 8) {
      std::memcpy(codes, from + 2, static_cast<size_t>(code_bytes));
      continue;
    }
    const auto nibble = [&](int64_t i) {
      const auto byte = std::to_integer<int>(from[2 + i % (kValues / 2)]);
      return i < kValues / 2 ? byte & 15 : byte >> 4;
    };
    for (int64_t i = 0; i < kValues; i += 2) codes[i / 2] = static_cast<uint8_t>(nibble(i) << 4 | nibble(i + 1));
  }
  return m;
}

}  // namespace trireme::ops
