// GGUF's blocks of 32 whole numbers with a scale in float16, Q8_0 and Q4_0: how values become such blocks, and how they
// lie in a file. Both have the bits of quants.py of PyPI's gguf (tests/formats/gguf_judge.py), which are llama.cpp's.
//
//   Q8_0   scale | 32 signed bytes             the largest magnitude becomes 127 or -127
//   Q4_0   scale | 16 bytes of two nibbles     the element of the largest magnitude becomes -8; nibbles are 8 more.
//                                              Low nibbles are elements 0 to 15, high ones 16 to 31
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trireme/ops/blocks/quantize.h"

namespace trireme::ops {

/// Bytes of one block in a file.
constexpr int64_t gguf_block_bytes(base::BlockFormat format) {
  const base::BlockFormatTraits& traits = base::traits_of(format);
  return traits.scale_bytes + traits.values * traits.bits / 8;
}

/// The codes of one block, as Quantized has them. Returns its scale, rounded to float16: infinity if a value is not
/// finite, or so large that the scale does not fit into float16; the codes are then undefined.
float quantize_gguf_block(base::BlockFormat format, const float* values, uint8_t* codes);

/// Blocks [first, first + count) of a matrix as a file holds them.
void write_gguf_blocks(const Quantized& matrix, int64_t first, int64_t count, std::byte* to);

/// A matrix out of all its blocks in a file.
///
/// Errors    ShapeError if a scale is not finite
Quantized read_gguf_blocks(base::BlockFormat format, std::span<const std::byte> blocks);

}  // namespace trireme::ops
