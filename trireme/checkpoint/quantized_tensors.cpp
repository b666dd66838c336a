#include "trireme/checkpoint/quantized_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/gguf_blocks.h"
#include "trireme/checkpoint/last_tensor.h"
#include "trireme/ops/blocks/codes.h"

namespace trireme::checkpoint {
namespace {

constexpr std::string_view kQuantState = ".quant_state.bitsandbytes__";
constexpr int64_t kMostStateBytes = 4096;

[[noreturn]] void fail(const Checkpoint& c, const std::string& tensor, const std::string& problem) {
  throw CheckpointError(fmt::format("{}: the matrix '{}' in 4 bits {}", c.path.string(), tensor, problem),
                        c.path.string(), tensor);
}

/// What the JSON object beside a matrix says.
struct StoredBlocks {
  base::BlockFormat format;
  std::vector<int64_t> shape;
  Dtype dtype;
  float offset;
};

class Stored : public LastTensor {
 public:
  explicit Stored(Checkpoint files) : files_(std::move(files)) {
    for (const auto& [name, tensor] : files_.tensors)
      if (const size_t at = name.find(kQuantState); at != std::string::npos)
        matrices_.emplace(name.substr(0, at), read_state(name.substr(0, at), name));
  }
  bool has(const std::string& tensor) const override { return matrices_.contains(tensor); }
  bool is_stored() const override { return true; }
  const std::map<std::string, StoredBlocks>& matrices() const { return matrices_; }

 private:
  /// All bytes of a tensor, which must be so many.
  void take(const std::string& matrix, const std::string& name, Dtype dtype, void* to, int64_t bytes) const {
    const StoredTensor& t = files_.tensor(name);
    if (dtype != t.dtype || t.elements * size_of(t.dtype) != bytes)
      fail(files_, matrix,
           fmt::format("needs {} bytes of {} in '{}', which has {} elements of {}", bytes, dtype_name(dtype), name,
                       t.elements, dtype_name(t.dtype)));
    read_piece(files_, {name, 0, t.elements, to, t.dtype});
  }

  StoredBlocks read_state(const std::string& matrix, const std::string& name) const try {
    const int64_t bytes = files_.tensor(name).elements;
    if (bytes > kMostStateBytes) fail(files_, matrix, "has a quant_state that is too large");
    std::string text(static_cast<size_t>(bytes), '\0');
    take(matrix, name, Dtype::u8, text.data(), bytes);
    const nlohmann::json state = base::parse_json(text);
    const bool nested = state.contains("nested_offset");
    const auto format = base::find_block_format("bitsandbytes", state.at("quant_type").get<std::string>(), nested);
    const auto dtype = parse_torch_name(state.at("dtype").get<std::string>());
    if (!format || !dtype || !is_float(*dtype) || state.at("blocksize") != base::traits_of(*format).values ||
        (nested && (state.at("nested_blocksize") != base::kNestedScales || state.at("nested_dtype") != "float32")))
      fail(files_, matrix, "has other blocks than nf4 and fp4 of 64 values: " + text);
    StoredBlocks blocks{.format = *format,
                        .shape = state.at("shape").get<std::vector<int64_t>>(),
                        .dtype = *dtype,
                        .offset = nested ? state.at("nested_offset").get<float>() : 0};
    if (blocks.shape.size() != 2) fail(files_, matrix, "is no matrix: " + text);
    const StoredTensor& codes = files_.tensor(matrix);
    if (codes.elements * size_of(codes.dtype) != (num_elements(blocks.shape) + 1) / 2)
      fail(files_, matrix,
           fmt::format("has {} bytes of codes, and its quant_state says {}", codes.elements * size_of(codes.dtype),
                       text));
    check_code(matrix, ".quant_map", ops::four_bit_code(*format));
    if (nested) check_code(matrix, ".nested_quant_map", ops::dynamic_code(true));
    return blocks;
  } catch (const nlohmann::json::exception& error) {
    fail(files_, matrix, fmt::format("has an unusable quant_state: {}", base::json_reason(error)));
  } catch (const ShapeError& error) {
    fail(files_, matrix, fmt::format("has an unusable quant_state: {}", error.what()));
  }

  template <typename Code>
  void check_code(const std::string& matrix, const std::string& suffix, const Code& ours) const {
    Code code;
    take(matrix, matrix + suffix, Dtype::f32, code.data(), std::ssize(code) * 4);
    for (size_t i = 0; i < code.size(); ++i)
      if (!(std::abs(code[i] - ours[i]) <= 1e-6f)) fail(files_, matrix, "has other values for its codes in " + suffix);
  }

  ops::Quantized make(const std::string& name) const override {
    const StoredBlocks& m = matrices_.at(name);
    ops::Quantized q{.format = m.format, .elements = num_elements(m.shape), .offset = m.offset};
    const int64_t blocks = ops::num_blocks(m.format, q.elements);
    q.codes.resize(static_cast<size_t>((q.elements + 1) / 2));
    take(name, name, files_.tensor(name).dtype, q.codes.data(), std::ssize(q.codes));
    if (base::traits_of(m.format).nested) {
      q.nested_codes.resize(static_cast<size_t>(blocks));
      q.nested_scales.resize(static_cast<size_t>(ops::num_nested_scales(blocks)));
      take(name, name + ".absmax", Dtype::u8, q.nested_codes.data(), blocks);
      take(name, name + ".nested_absmax", Dtype::f32, q.nested_scales.data(), std::ssize(q.nested_scales) * 4);
    } else {
      q.scales.resize(static_cast<size_t>(blocks));
      take(name, name + ".absmax", Dtype::f32, q.scales.data(), blocks * 4);
    }
    return q;
  }

  Checkpoint files_;
  std::map<std::string, StoredBlocks> matrices_;
};

class Made : public LastTensor {
 public:
  Made(Checkpoint files, base::BlockFormat format, std::function<bool(const std::string&)> chooses)
      : files_(std::move(files)), format_(format), chooses_(std::move(chooses)) {}
  bool has(const std::string& tensor) const override { return chooses_(tensor); }
  bool is_stored() const override { return false; }

 private:
  ops::Quantized make(const std::string& name) const override {
    return ops::quantize(format_, files_.tensor(name).elements, name, [&](int64_t begin, int64_t end, float* values) {
      read_piece(files_, {name, begin, end, values, Dtype::f32});
    });
  }

  Checkpoint files_;
  base::BlockFormat format_;
  std::function<bool(const std::string&)> chooses_;
};

}  // namespace

Checkpoint with_stored_blocks(Checkpoint c) {
  const auto is_state = [](const auto& tensor) { return tensor.first.find(kQuantState) != std::string::npos; };
  if (std::ranges::none_of(c.tensors, is_state)) return with_gguf_blocks(std::move(c));
  const auto stored = std::make_shared<const Stored>(c);
  for (const auto& [name, blocks] : stored->matrices()) {
    std::erase_if(c.tensors, [&, prefix = name + "."](const auto& tensor) { return tensor.first.starts_with(prefix); });
    const auto matrix = c.tensors.find(name);
    if (matrix == c.tensors.end()) fail(c, name, "has a quant_state, but no codes");
    matrix->second.shape = blocks.shape;
    matrix->second.elements = num_elements(blocks.shape);
    matrix->second.dtype = blocks.dtype;
  }
  c.quantized = stored;
  return c;
}

Checkpoint in_blocks(Checkpoint c, base::BlockFormat format, std::function<bool(const std::string&)> chooses) {
  Checkpoint files = c;
  files.change = nullptr;  // it changes the values of the blocks
  c.quantized = std::make_shared<const Made>(std::move(files), format, std::move(chooses));
  return c;
}

void refuse_dtype_beside_codes(const std::string& config_json, const std::string& path) {
  const nlohmann::json config = base::parse_json_if_sound(config_json);
  const auto found = config.is_object() ? config.find("quantization_config") : config.end();
  if (!config.is_object() || found == config.end() || !found->is_object()) return;
  const auto method = found->find("quant_method");
  if (method != found->end() && *method == "gguf") return;
  throw UsageError(
      fmt::format("error: the weights of {} are codes (quantization_config in its config.json), and the scales and "
                  "tables beside them must keep their dtype\n  leave --dtype out to copy the folder as it is; trireme "
                  "convert writes the values of codes in 4 bits and of 8-bit floats",
                  path));
}

}  // namespace trireme::checkpoint
