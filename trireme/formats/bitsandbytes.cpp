#include "trireme/formats/bitsandbytes.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/bitsandbytes.h"
#include "trireme/model/model.h"
#include "trireme/model/quantized.h"
#include "trireme/ops/blocks/codes.h"

namespace trireme::formats {
namespace {

/// Bytes of the JSON object. Nested, its length depends on a number of the whole matrix: spaces follow the text.
int64_t state_bytes(const TensorSpec& matrix, base::BlockFormat format) {
  constexpr int64_t kMostDigits = 24;
  const ops::Quantized nothing{.format = format};
  const int64_t bytes = std::ssize(checkpoint::quant_state_json(nothing, matrix.shape, matrix.dtype));
  return base::traits_of(format).nested ? bytes + kMostDigits : bytes;
}

}  // namespace

BlockSource::BlockSource(const TensorSource& source, const std::set<std::string>& matrices, base::BlockFormat format)
    : source_(source), format_(format), last_(source.tensors().size()) {
  const bool nested = base::traits_of(format).nested;
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    const TensorSpec& tensor = source.tensors()[i];
    if (!matrices.contains(tensor.name)) {
      add(i, Kind::plain, "", tensor.shape, tensor.dtype);
      continue;
    }
    const int64_t elements = num_elements(tensor.shape), blocks = ops::num_blocks(format, elements);
    add(i, Kind::codes, "", {(elements + 1) / 2, 1}, Dtype::u8);
    add(i, Kind::scales, ".absmax", {blocks}, nested ? Dtype::u8 : Dtype::f32);
    add(i, Kind::code, ".quant_map", {16}, Dtype::f32);
    if (nested) {
      add(i, Kind::nested_scales, ".nested_absmax", {ops::num_nested_scales(blocks)}, Dtype::f32);
      add(i, Kind::nested_code, ".nested_quant_map", {256}, Dtype::f32);
    }
    add(i, Kind::state, checkpoint::quant_state_suffix(format), {state_bytes(tensor, format)}, Dtype::u8);
  }
}

void BlockSource::add(size_t source, Kind kind, const std::string& suffix, std::vector<int64_t> shape, Dtype dtype) {
  tensors_.push_back({.name = source_.tensors()[source].name + suffix, .shape = std::move(shape), .dtype = dtype});
  entries_.push_back({source, kind});
}

const ops::Quantized& BlockSource::whole(size_t source) const {
  if (source == last_) return *whole_;
  whole_.reset();
  const TensorSpec& matrix = source_.tensors()[source];
  whole_ = std::make_unique<const ops::Quantized>(ops::quantize(
      format_, num_elements(matrix.shape), matrix.name,
      [&](int64_t begin, int64_t end, float* values) { source_.read(source, begin, end, values, Dtype::f32); }));
  last_ = source;
  return *whole_;
}

void BlockSource::read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const {
  const Entry& entry = entries_[tensor];
  const TensorSpec& given = source_.tensors()[entry.source];
  if (entry.kind == Kind::plain) return source_.read(entry.source, begin, end, data, dtype);
  check_invariant(dtype == tensors_[tensor].dtype, "codes and statistics are written as they are");
  const ops::Quantized& q = whole(entry.source);
  const auto take = [&](const auto& values) {
    std::memcpy(data, values.data() + begin, static_cast<size_t>(end - begin) * sizeof(*values.data()));
  };
  std::string state = entry.kind == Kind::state ? checkpoint::quant_state_json(q, given.shape, given.dtype) : "";
  state.resize(std::max(state.size(), static_cast<size_t>(tensors_[tensor].shape[0])), ' ');
  switch (entry.kind) {
    case Kind::plain:
      return;
    case Kind::codes:
      return take(q.codes);
    case Kind::scales:
      return q.scales.empty() ? take(q.nested_codes) : take(q.scales);
    case Kind::code:
      return take(ops::four_bit_code(format_));
    case Kind::nested_scales:
      return take(q.nested_scales);
    case Kind::nested_code:
      return take(ops::dynamic_code(true));
    case Kind::state:
      return take(state);
  }
}

std::string with_bitsandbytes(const std::string& config_json, base::BlockFormat format, const std::string& dtype) {
  nlohmann::ordered_json config = base::parse_json<nlohmann::ordered_json>(config_json);
  const base::BlockFormatTraits& traits = base::traits_of(format);
  config["quantization_config"] = {{"_load_in_4bit", true},
                                   {"_load_in_8bit", false},
                                   {"bnb_4bit_compute_dtype", dtype},
                                   {"bnb_4bit_quant_storage", "uint8"},
                                   {"bnb_4bit_quant_type", traits.code},
                                   {"bnb_4bit_use_double_quant", traits.nested},
                                   {"llm_int8_enable_fp32_cpu_offload", false},
                                   {"llm_int8_has_fp16_weight", false},
                                   {"llm_int8_skip_modules", nullptr},
                                   {"llm_int8_threshold", 6.0},
                                   {"load_in_4bit", true},
                                   {"load_in_8bit", false},
                                   {"quant_method", "bitsandbytes"}};
  return config.dump(2) + "\n";
}

std::set<std::string> matrices_in_blocks(const std::string& config_json, base::BlockFormat format) {
  model::ModelConfig config = model::parse_hugging_face_config(config_json, "config.json");
  config.quantized_by = "--dtype";
  model::quantize(config, format, "the source");
  const model::Model model = model::build_model(config, {});
  std::set<std::string> names;
  for (const model::ParameterGroup& group : model.groups)
    for (const model::ParameterSpec& p : group.parameters)
      if (p.is_quantized()) names.insert(p.name);
  return names;
}

}  // namespace trireme::formats
