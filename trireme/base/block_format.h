// Formats of weights in blocks: a few bits for each element, and a scale for each block of neighbours in a row-major
// matrix. The codes and their arithmetic are in ops/blocks; this table is what all other parts know of them.
//
// bitsandbytes' formats run over a whole matrix, GGUF's over each of its rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace trireme::base {

enum class BlockFormat { none, nf4, nf4_nested, fp4, fp4_nested, q8_0, q4_0 };

struct BlockFormatTraits {
  BlockFormat format;
  std::string_view name;    ///< of the setting: "bnb.nf4-dq", "q8_0"
  std::string_view method;  ///< whose format it is, as quant_method of a config.json names it
  std::string_view code;    ///< its name there of what codes stand for: "nf4", "q8_0"
  bool nested;  ///< scales are themselves in blocks: 8 bits each, with a scale and one offset of a whole matrix
  int bits;     ///< of a code
  int scale_bytes;  ///< as scales are kept: a float, a half, or a code of a nested one
  int64_t values;   ///< elements with a common scale, a power of two
  constexpr bool blocks() const { return format != BlockFormat::none; }
  constexpr bool in_rows() const { return method == "gguf"; }  ///< no block has elements of two rows
};

inline constexpr int64_t kNestedScales = 256;  ///< scales with a common scale of their own

inline constexpr BlockFormatTraits kBlockFormats[] = {
    {BlockFormat::none, "none", "", "", false, 0, 0, 1},
    {BlockFormat::nf4, "bnb.nf4", "bitsandbytes", "nf4", false, 4, 4, 64},
    {BlockFormat::nf4_nested, "bnb.nf4-dq", "bitsandbytes", "nf4", true, 4, 1, 64},
    {BlockFormat::fp4, "bnb.fp4", "bitsandbytes", "fp4", false, 4, 4, 64},
    {BlockFormat::fp4_nested, "bnb.fp4-dq", "bitsandbytes", "fp4", true, 4, 1, 64},
    {BlockFormat::q8_0, "q8_0", "gguf", "q8_0", false, 8, 2, 32},
    {BlockFormat::q4_0, "q4_0", "gguf", "q4_0", false, 4, 2, 32}};

constexpr const BlockFormatTraits& traits_of(BlockFormat format) { return kBlockFormats[static_cast<int>(format)]; }

/// The format of the setting's name; none for other names.
constexpr BlockFormat block_format_named(std::string_view name) {
  for (const BlockFormatTraits& row : kBlockFormats)
    if (row.name == name) return row.format;
  return BlockFormat::none;
}

/// The format with this name of its code; nothing for codes that Trireme does not know.
constexpr std::optional<BlockFormat> find_block_format(std::string_view method, std::string_view code, bool nested) {
  for (const BlockFormatTraits& row : kBlockFormats)
    if (row.blocks() && row.method == method && row.code == code && row.nested == nested) return row.format;
  return std::nullopt;
}

}  // namespace trireme::base
