#include "trireme/formats/scaled_floats.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/json.h"

namespace trireme::formats {
namespace {

constexpr std::string_view kBlockScales = "_scale_inv", kPlainScales = "_scale";

bool is_f8(Dtype dtype) { return dtype == Dtype::f8_e4m3 || dtype == Dtype::f8_e5m2; }

std::map<std::string_view, size_t> by_name(const TensorSource& source) {
  std::map<std::string_view, size_t> names;
  for (size_t i = 0; i < source.tensors().size(); ++i) names[source.tensors()[i].name] = i;
  return names;
}

// The scales of a matrix: those of blocks, or plain ones.
std::optional<std::pair<size_t, bool>> scales_of(const TensorSpec& tensor,
                                                 const std::map<std::string_view, size_t>& names) {
  if (!is_f8(tensor.dtype)) return std::nullopt;
  for (const bool blocks : {true, false}) {
    const auto found = names.find(tensor.name + std::string(blocks ? kBlockScales : kPlainScales));
    if (found != names.end()) return std::pair(found->second, blocks);
  }
  return std::nullopt;
}

std::array<float, 256> table_of(Dtype dtype) {
  const int mantissa = dtype == Dtype::f8_e4m3 ? 3 : 2, bias = dtype == Dtype::f8_e4m3 ? 7 : 15;
  std::array<float, 256> values{};
  for (int bits = 0; bits < 256; ++bits) {
    const int exponent = (bits & 127) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
    float value = exponent == 0 ? std::ldexp(static_cast<float>(fraction), 1 - bias - mantissa)
                                : std::ldexp(static_cast<float>(fraction | 1 << mantissa), exponent - bias - mantissa);
    if (dtype == Dtype::f8_e4m3 && (bits & 127) == 127) value = std::numeric_limits<float>::quiet_NaN();
    if (dtype == Dtype::f8_e5m2 && exponent == 31)
      value = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    values[static_cast<size_t>(bits)] = bits < 128 ? value : -value;
  }
  return values;
}

const std::array<float, 256>& values_of(Dtype dtype) {
  static const std::array<float, 256> e4m3 = table_of(Dtype::f8_e4m3), e5m2 = table_of(Dtype::f8_e5m2);
  return dtype == Dtype::f8_e4m3 ? e4m3 : e5m2;
}

int64_t ceil_divide(int64_t a, int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace

float read_f8(uint8_t bits, Dtype dtype) { return values_of(dtype)[bits]; }

bool has_scaled_floats(const TensorSource& source) {
  const auto names = by_name(source);
  for (const TensorSpec& tensor : source.tensors())
    if (scales_of(tensor, names)) return true;
  return false;
}

ScaledFloatSource::ScaledFloatSource(const TensorSource& source, const std::string& config_json,
                                     const std::string& path)
    : source_(source) {
  const nlohmann::json config = base::parse_json_if_sound(config_json);
  if (config.is_object() && config.contains("quantization_config") && config["quantization_config"].is_object()) {
    const auto sizes = config["quantization_config"].find("weight_block_size");
    if (sizes != config["quantization_config"].end() && sizes->is_array() && sizes->size() == 2) {
      for (const nlohmann::json& size : *sizes)
        if (!base::is_whole_number(size) || size.get<int64_t>() < 1)
          throw CheckpointError(fmt::format("{}: quantization_config.weight_block_size is {}; it must be two sizes of "
                                            "at least 1",
                                            path, sizes->dump()),
                                path);
      block_rows_ = (*sizes)[0].get<int64_t>(), block_columns_ = (*sizes)[1].get<int64_t>();
    }
  }
  const auto names = by_name(source);
  std::vector<bool> is_scale(source.tensors().size());
  for (const TensorSpec& tensor : source.tensors())
    if (const auto scales = scales_of(tensor, names)) is_scale[scales->first] = true;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    TensorSpec tensor = source.tensors()[i];
    if (is_scale[i] || tensor.name.ends_with(".input_scale") || tensor.name.ends_with(".activation_scale")) continue;
    std::optional<FloatScaling> scaling;
    if (const auto scales = scales_of(tensor, names)) {
      resolve(tensor, scales->first, scales->second, path, scaling.emplace());
      tensor.dtype = Dtype::bf16;
      ++num_scaled_;
    }
    tensors_.push_back(std::move(tensor));
    of_.push_back(i);
    scaling_.push_back(scaling);
  }
}

void ScaledFloatSource::resolve(const TensorSpec& matrix, size_t scales, bool blocks, const std::string& path,
                                FloatScaling& scaling) const {
  const TensorSpec& given = source_.tensors()[scales];
  const int64_t count = num_elements(given.shape);
  const bool is_matrix = matrix.shape.size() == 2;
  const int64_t rows = is_matrix ? matrix.shape[0] : 1, columns = is_matrix ? matrix.shape[1] : 1;
  scaling.scales = scales;
  if (blocks && is_matrix && count != 1) {
    scaling.rows = block_rows_, scaling.columns = block_columns_;
    scaling.blocks_in_row = ceil_divide(columns, block_columns_);
  } else {
    scaling.rows = count == 1 ? std::max<int64_t>(rows, 1) : 1, scaling.columns = std::max<int64_t>(columns, 1);
  }
  const std::vector<int64_t> expected = {ceil_divide(rows, scaling.rows), scaling.blocks_in_row};
  const bool fits = count == 1 || given.shape == expected || (!blocks && given.shape == std::vector<int64_t>{rows});
  if (is_matrix && fits && checkpoint::is_float(given.dtype)) return;
  throw CheckpointError(fmt::format("tensor '{}' of {} is {} {}: these are no scales for blocks of '{}' {}; expected "
                                    "are floats {}",
                                    given.name, path, dtype_name(given.dtype), shape_text(given.shape), matrix.name,
                                    shape_text(matrix.shape), shape_text(expected)),
                        path, given.name);
}

void ScaledFloatSource::read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const {
  const size_t of = of_.at(tensor);
  const std::optional<FloatScaling>& scaling = scaling_[tensor];
  if (!scaling || begin >= end) return source_.read(of, begin, end, data, dtype);
  const TensorSpec& matrix = source_.tensors()[of];
  if (!checkpoint::is_float(dtype))
    throw CheckpointError(
        fmt::format("tensor '{}' holds floating-point numbers, not {}", matrix.name, dtype_name(dtype)), "",
        matrix.name);
  const int64_t columns = matrix.shape[1], first = begin / columns / scaling->rows * scaling->blocks_in_row,
                last = ((end - 1) / columns / scaling->rows + 1) * scaling->blocks_in_row;
  std::vector<float> scales(static_cast<size_t>(last - first)), values(static_cast<size_t>(end - begin));
  std::vector<uint8_t> bits(values.size());
  source_.read(scaling->scales, first, last, scales.data(), Dtype::f32);
  source_.read(of, begin, end, bits.data(), matrix.dtype);
  const std::array<float, 256>& table = values_of(matrix.dtype);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t scale = i / columns / scaling->rows * scaling->blocks_in_row + i % columns / scaling->columns - first;
    values[static_cast<size_t>(i - begin)] =
        table[bits[static_cast<size_t>(i - begin)]] * scales[static_cast<size_t>(scale)];
  }
  checkpoint::convert(values.data(), Dtype::f32, data, dtype, end - begin);
}

std::string without_quantization(const std::string& config_json) {
  nlohmann::ordered_json config = base::parse_json<nlohmann::ordered_json>(config_json);
  if (!config.is_object() || config.erase("quantization_config") == 0) return config_json;
  return config.dump(2) + "\n";
}

}  // namespace trireme::formats
