// The values that codes of a block stand for: nf4 and fp4 (4 bits), and the signed dynamic map (8 bits) of nested
// scales. All bits are bitsandbytes' (tests/checkpoint/blocks_judge.py). GGUF's codes are whole numbers (gguf.h).
//
// Source: Dettmers et al., QLoRA (2023); bitsandbytes 0.50, functional.py
#pragma once

#include <array>
#include <cstdint>

#include "trireme/base/block_format.h"

namespace trireme::ops {

using FourBitCode = std::array<float, 16>;
using EightBitCode = std::array<float, 256>;

/// The values of a format's nibbles: in [-1, 1], or -8 to 7.
const FourBitCode& four_bit_code(base::BlockFormat format);

/// How a value becomes a nibble of bitsandbytes' formats: nibbles[n], where n is how many of the ascending `bounds` are
/// less than it.
struct FourBitSearch {
  std::array<float, 15> bounds;
  std::array<uint8_t, 16> nibbles;
};
const FourBitSearch& four_bit_search(base::BlockFormat format);

/// The dynamic map: ascending values in [-1, 1] (signed) or [0, 1], more of them near 0.
const EightBitCode& dynamic_code(bool is_signed);
/// The code of `value`, clamped to [-1, 1], in that map: the nearest, as bitsandbytes finds it on processors, by a
/// table of 65,536 places.
uint8_t dynamic_byte(bool is_signed, float value);

}  // namespace trireme::ops
