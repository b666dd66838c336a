// The element types of GGUF: plain floats, blocks of 32 values with a common scale, and "K" blocks of 256 values, whose
// 8 or 16 parts have scales of their own in units of the block's.
//
// Only the arithmetic is here; gguf.h reads files. Both directions give the same bits as quants.py of PyPI's gguf
// (tests/formats/gguf_judge.py). So products and sums keep that file's order and are not fused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/block_format.h"
#include "trireme/formats/vocabulary.h"

namespace trireme::formats {

/// The types that Trireme reads, with their numbers in the file.
enum class GgufType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30
};

struct GgufTypeInfo {
  GgufType type;
  std::string_view name;  ///< "Q8_0"
  int64_t block_elements;
  int64_t block_bytes;
  Dtype dtype;  ///< of the decoded values
};

/// The table's row of a type; null if Trireme does not read the type.
const GgufTypeInfo* find_gguf_type(uint32_t number);
const GgufTypeInfo& info(GgufType type);

/// The name of a type by its number, "Q4_K", also if Trireme does not read it; "number 99" if unknown.
std::string gguf_type_name(uint32_t number);

/// Decodes whole blocks of `type` to float32. For plain floats use convert().
void dequantize(GgufType type, const std::byte* blocks, float* values, int64_t num_blocks);

/// Q8_0 and Q4_0 as formats in which models can be kept; none for other types.
base::BlockFormat block_format_of(GgufType type);

/// Converts values to whole blocks of such a format. False if a value is not finite, or so large that its scale does
/// not fit into float16.
bool quantize(base::BlockFormat format, const float* values, std::byte* blocks, int64_t num_blocks);

}  // namespace trireme::formats
