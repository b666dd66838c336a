#include "trireme/ops/blocks/quantize.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/ops/blocks/codes.h"
#include "trireme/ops/blocks/gguf.h"
#include "trireme/ops/blocks/matrix.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

constexpr uint32_t kInfinity = 0x7F800000;
constexpr float kLeastScale = 1e-38f;
constexpr int64_t kPieceElements = 1 << 20;

// The largest magnitude; of bits, so that a NaN is larger than all numbers.
float largest(const float* values, int64_t count) {
  uint32_t most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::max(most, std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFF);
  return std::bit_cast<float>(most);
}

uint8_t nibble_of(const FourBitSearch& search, float value) {
  size_t below = 0;
  for (const float bound : search.bounds) below += bound < value;
  return search.nibbles[below];
}

/// One block of bitsandbytes' formats; its scale is returned. It has 64 elements, or is the matrix's last.
float quantize_nibbles(const FourBitSearch& search, const float* values, int64_t count, uint8_t* codes) {
  const bool whole = count == kMostBlockValues;
  const float most = largest(values, count), scale = whole ? most : std::max(most, kLeastScale);
  const float inverse = 1.0f / std::max(most, kLeastScale);
  float scaled[kMostBlockValues + 1] = {};
  for (int64_t i = 0; i < count; ++i)
    scaled[i] = std::clamp(whole ? values[i] * inverse : values[i] / scale, -1.0f, 1.0f);
  for (int64_t i = 0; i < count; i += 2)
    codes[i / 2] = static_cast<uint8_t>(nibble_of(search, scaled[i]) << 4 | nibble_of(search, scaled[i + 1]));
  return scale;
}

/// One block of any format; the matrix's last one may have fewer elements.
float quantize_block(base::BlockFormat format, const float* values, int64_t count, uint8_t* codes) {
  const base::BlockFormatTraits& traits = base::traits_of(format);
  if (!traits.in_rows()) return quantize_nibbles(four_bit_search(format), values, count, codes);
  if (count == traits.values) return quantize_gguf_block(format, values, codes);
  float filled_up[kMostBlockValues] = {};
  uint8_t all[kMostBlockValues] = {};
  std::copy(values, values + count, filled_up);
  const float scale = quantize_gguf_block(format, filled_up, all);
  std::copy(all, all + code_bytes(format, count), codes);
  return scale;
}

/// LibTorch's mean, which adds in another order on several threads.
float mean_on_one_thread(const std::vector<float>& values) {
  const at::Tensor tensor = at::from_blob(const_cast<float*>(values.data()), {std::ssize(values)}, at::kFloat);
  const int threads = at::get_num_threads();
  if (threads > 1) at::set_num_threads(1);
  const float mean = tensor.mean().item<float>();
  if (threads > 1) at::set_num_threads(threads);
  return mean;
}

void nest(Quantized& q) {
  const int64_t blocks = std::ssize(q.scales);
  q.offset = mean_on_one_thread(q.scales);
  for (float& scale : q.scales) scale -= q.offset;
  q.nested_codes.resize(static_cast<size_t>(blocks));
  q.nested_scales.resize(static_cast<size_t>(num_nested_scales(blocks)));
  for (int64_t i = 0; i < std::ssize(q.nested_scales); ++i) {
    const int64_t begin = i * base::kNestedScales, end = std::min(blocks, begin + base::kNestedScales);
    const float most = largest(q.scales.data() + begin, end - begin);
    q.nested_scales[static_cast<size_t>(i)] = most;
    const float inverse = 1.0f / most;
    for (int64_t b = begin; b < end; ++b)
      q.nested_codes[static_cast<size_t>(b)] =
          most == 0 ? uint8_t{0} : dynamic_byte(true, q.scales[static_cast<size_t>(b)] * inverse);
  }
  q.scales.clear();
}

}  // namespace

Quantizer::Quantizer(base::BlockFormat format, int64_t elements) {
  to_ = {.format = format, .elements = elements};
  to_.codes.resize(static_cast<size_t>(code_bytes(format, elements)));
  to_.scales.resize(static_cast<size_t>(num_blocks(format, elements)));
}

void Quantizer::add(int64_t begin, int64_t count, const float* values) {
  const int64_t block_values = base::traits_of(to_.format).values;
  check_invariant(begin % block_values == 0 && (count % block_values == 0 || begin + count == to_.elements),
                  "whole blocks are quantized");
  std::atomic<bool> finite = true;
  parallel_rows(num_blocks(to_.format, count), row_grain(block_values), [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t from = block * block_values;
      const float scale = quantize_block(to_.format, values + from, std::min(block_values, count - from),
                                         to_.codes.data() + code_bytes(to_.format, begin + from));
      if ((std::bit_cast<uint32_t>(scale) & 0x7FFFFFFF) >= kInfinity) finite = false;
      to_.scales[static_cast<size_t>(begin / block_values + block)] = scale;
    }
  });
  if (!finite)
    throw ShapeError(
        fmt::format("a value is infinite, not a number or too large, and {} values have one scale", block_values));
}

Quantized Quantizer::finish() {
  if (base::traits_of(to_.format).nested) nest(to_);
  if (!std::isfinite(to_.offset))
    throw ShapeError("its values are too large for scales in 8 bits: the mean of their blocks' scales is infinite");
  return std::move(to_);
}

Quantized quantize(base::BlockFormat format, int64_t elements, const std::string& name,
                   const std::function<void(int64_t, int64_t, float*)>& read) try {
  Quantizer quantizer(format, elements);
  std::vector<float> values(static_cast<size_t>(std::min(elements, kPieceElements)));
  for (int64_t begin = 0; begin < elements; begin += kPieceElements) {
    const int64_t end = std::min(elements, begin + kPieceElements);
    read(begin, end, values.data());
    quantizer.add(begin, end - begin, values.data());
  }
  return quantizer.finish();
} catch (const ShapeError& error) {
  throw CheckpointError(fmt::format("{} cannot be quantized: {}", name, error.what()), "", name);
}

float scale_of(const Quantized& m, int64_t block) {
  const auto b = static_cast<size_t>(block);
  if (m.nested_codes.empty()) return m.scales[b];
  return dynamic_code(true)[m.nested_codes[b]] * m.nested_scales[b / base::kNestedScales] + m.offset;
}

void dequantize(const Quantized& m, int64_t begin, int64_t count, float* values) {
  const base::BlockFormatTraits& format = base::traits_of(m.format);
  const FourBitCode& code = four_bit_code(m.format);
  const auto value_of = [&](int64_t i) {
    if (format.bits == 8) return static_cast<float>(std::bit_cast<int8_t>(m.codes[static_cast<size_t>(i)]));
    const uint8_t byte = m.codes[static_cast<size_t>(i / 2)];
    return code[i % 2 == 0 ? byte >> 4 : byte & 15];
  };
  for (int64_t i = begin; i < begin + count;) {
    const int64_t end = std::min(begin + count, (i / format.values + 1) * format.values);
    const float scale = scale_of(m, i / format.values);
    for (; i < end; ++i) values[i - begin] = value_of(i) * scale;
  }
}

}  // namespace trireme::ops
