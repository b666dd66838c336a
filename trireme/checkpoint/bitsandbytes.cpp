#include "trireme/checkpoint/bitsandbytes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::checkpoint {
namespace {

/// A number as Python's repr: with a point or an exponent.
std::string python_float(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string quant_state_json(const ops::Quantized& m, const std::vector<int64_t>& shape, Dtype dtype) {
  const base::BlockFormatTraits& traits = base::traits_of(m.format);
  const std::string nested =
      traits.nested ? fmt::format(R"(, "nested_blocksize": {}, "nested_dtype": "float32", "nested_offset": {})",
                                  base::kNestedScales, python_float(m.offset))
                    : "";
  return fmt::format(R"({{"quant_type": "{}", "blocksize": {}, "dtype": "{}", "shape": [{}]{}}})", traits.code,
                     traits.values, torch_name(dtype), fmt::join(shape, ", "), nested);
}

std::string quant_state_suffix(base::BlockFormat format) {
  return fmt::format(".quant_state.bitsandbytes__{}", base::traits_of(format).code);
}

}  // namespace trireme::checkpoint
