// The element types of GGUF: plain floats, and blocks of 32 values with a common scale.
//
// Only the arithmetic; files are gguf.h. Values equal those of PyPI gguf's quants.py bit for bit, both ways
// (tests/checkpoint/gguf_judge.py), so products and sums keep its order and are not fused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/checkpoint/dtype.h"

namespace trireme::checkpoint {

/// Those that Trireme reads; the numbers are the file's.
enum class GgufType : uint32_t { f32 = 0, f16 = 1, q4_0 = 2, q4_1 = 3, q8_0 = 8, bf16 = 30 };

struct GgufTypeInfo {
  GgufType type;
  std::string_view name;  ///< "Q8_0"
  int64_t block_elements;
  int64_t block_bytes;
  Dtype dtype;  ///< of the values
};

/// What is known of a type; null when Trireme does not read it.
const GgufTypeInfo* find_gguf_type(uint32_t number);
const GgufTypeInfo& info(GgufType type);

/// "Q4_K", or "number 99" when nobody knows it.
std::string gguf_type_name(uint32_t number);

/// Values of `blocks` whole blocks of `type`, as float32. Not for F16 and the like: those are convert()'s.
void dequantize(GgufType type, const std::byte* blocks, float* values, int64_t num_blocks);

/// 32 values a block to Q8_0. False when a value is not finite or so large that its scale does not fit in float16.
bool quantize_q8_0(const float* values, std::byte* blocks, int64_t num_blocks);

}  // namespace trireme::checkpoint
