// Formats of weights in blocks: a few bits for each element, and a scale for each block of neighbours in a row-major
// matrix. The codes and their arithmetic are in ops/blocks; this table is what all other parts know of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace trireme::base {

enum class BlockFormat { none, nf4, nf4_nested, fp4, fp4_nested };

struct BlockFormatTraits {
  BlockFormat format;
  std::string_view name;  ///< of the setting: "bnb.nf4-dq"
  std::string_view code;  ///< bitsandbytes' name of the 16 values: "nf4"
  bool nested;  ///< scales are themselves in blocks: 8 bits each, with a scale and one offset of a whole matrix
  constexpr bool blocks() const { return format != BlockFormat::none; }
};

inline constexpr int64_t kBlockValues = 64;  ///< elements with a common scale
inline constexpr int64_t kNestedScales = 256;  ///< scales with a common scale of their own

inline constexpr BlockFormatTraits kBlockFormats[] = {{BlockFormat::none, "none", "", false},
                                                      {BlockFormat::nf4, "bnb.nf4", "nf4", false},
                                                      {BlockFormat::nf4_nested, "bnb.nf4-dq", "nf4", true},
                                                      {BlockFormat::fp4, "bnb.fp4", "fp4", false},
                                                      {BlockFormat::fp4_nested, "bnb.fp4-dq", "fp4", true}};

constexpr const BlockFormatTraits& traits_of(BlockFormat format) { return kBlockFormats[static_cast<int>(format)]; }

/// The format of the setting's name; none for other names.
constexpr BlockFormat block_format_named(std::string_view name) {
  for (const BlockFormatTraits& row : kBlockFormats)
    if (row.name == name) return row.format;
  return BlockFormat::none;
}

/// The format with bitsandbytes' name of its code; nothing for codes that Trireme does not know.
constexpr std::optional<BlockFormat> find_block_format(std::string_view code, bool nested) {
  for (const BlockFormatTraits& row : kBlockFormats)
    if (row.blocks() && row.code == code && row.nested == nested) return row.format;
  return std::nullopt;
}

}  // namespace trireme::base
