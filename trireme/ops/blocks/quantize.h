// A matrix in blocks with a scale each. In bitsandbytes' formats every block's largest magnitude becomes 1, and each
// element the nearest of 16 values; GGUF's are in gguf.h. Whole matrices are quantized, and only then divided over
// ranks (part.h): so every way of dividing a model has the same blocks.
//
// In bits as bitsandbytes 0.50 on a processor: whole blocks are multiplied by 1 / scale, a last partial block is
// divided by it; an odd number of elements ends with the nibble of 0; the offset of nested scales is LibTorch's mean of
// all scales, on one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/base/block_format.h"

namespace trireme::ops {

/// A whole matrix of `elements`, row-major.
struct Quantized {
  base::BlockFormat format = base::BlockFormat::none;
  int64_t elements = 0;
  std::vector<uint8_t> codes = {};  ///< [code_bytes()]: of nibbles, the earlier element in the high one
  std::vector<float> scales = {};  ///< [blocks], GGUF's rounded to float16; nested: empty
  // Nested: scale = dynamic_code[nested_codes] * nested_scales + offset
  std::vector<uint8_t> nested_codes = {};  ///< [blocks]
  std::vector<float> nested_scales = {};  ///< [(blocks + 255) / 256]
  float offset = 0;
};

/// The blocks of so many elements, and the bytes of their codes.
constexpr int64_t num_blocks(base::BlockFormat format, int64_t elements) {
  const int64_t values = base::traits_of(format).values;
  return (elements + values - 1) / values;
}
constexpr int64_t code_bytes(base::BlockFormat format, int64_t elements) {
  return (elements * base::traits_of(format).bits + 7) / 8;
}
constexpr int64_t num_nested_scales(int64_t blocks) { return (blocks + base::kNestedScales - 1) / base::kNestedScales; }

/// Quantizes a matrix that arrives in pieces.
class Quantizer {
 public:
  Quantizer(base::BlockFormat format, int64_t elements);
  /// Elements [begin, begin + count), in any order; `begin` is a multiple of 64, and so is `count` except at the end.
  ///
  /// Cost      a pass over them, on LibTorch's threads; codes and scales of 4 bytes a block are kept
  /// Errors    ShapeError if a value is not finite, or too large for its scale: it would spoil its whole block
  void add(int64_t begin, int64_t count, const float* values);
  Quantized finish();

 private:
  Quantized to_;
};

/// Quantizes the matrix `name`, whose elements [begin, end) `read` gives in float32, piece by piece.
///
/// Errors    CheckpointError naming it if a value is not finite, or too large for its scale
Quantized quantize(base::BlockFormat format, int64_t elements, const std::string& name,
                   const std::function<void(int64_t begin, int64_t end, float* values)>& read);

/// The scale of a block.
float scale_of(const Quantized& matrix, int64_t block);
/// Elements [begin, begin + count) in float32. `begin` is even.
void dequantize(const Quantized& matrix, int64_t begin, int64_t count, float* values);

}  // namespace trireme::ops
