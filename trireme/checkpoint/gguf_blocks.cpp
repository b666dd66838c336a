#include "trireme/checkpoint/gguf_blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/checkpoint/last_tensor.h"
#include "trireme/ops/blocks/gguf.h"

namespace trireme::checkpoint {
namespace {

bool is_matrix_of_bytes(const StoredTensor& tensor) { return tensor.dtype == Dtype::u8 && tensor.shape.size() == 2; }

[[noreturn]] void fail_blocks(const Checkpoint& c, const std::string& tensor, base::BlockFormat format,
                              const std::string& problem) {
  throw CheckpointError(
      fmt::format("{}: the matrix '{}' in {} {}", c.path.string(), tensor, base::traits_of(format).name, problem),
      c.path.string(), tensor);
}

/// As its config.json says; none: no blocks of GGUF.
base::BlockFormat gguf_format_of(const Checkpoint& c) {
  if (!c.texts.contains("config.json") && !std::filesystem::exists(c.path / "config.json"))
    return base::BlockFormat::none;
  const nlohmann::json config = base::parse_json_if_sound(read_text(c, "config.json"));
  const auto found = config.is_object() ? config.find("quantization_config") : config.end();
  if (!config.is_object() || found == config.end() || !found->is_object()) return base::BlockFormat::none;
  const auto text = [&](const char* key) {
    const auto value = found->find(key);
    return value != found->end() && value->is_string() ? value->get<std::string>() : std::string();
  };
  if (text("quant_method") != "gguf") return base::BlockFormat::none;
  return base::find_block_format("gguf", text("quant_type"), false).value_or(base::BlockFormat::none);
}

class StoredGguf : public LastTensor {
 public:
  StoredGguf(Checkpoint files, base::BlockFormat format, std::set<std::string> matrices)
      : files_(std::move(files)), format_(format), matrices_(std::move(matrices)) {}
  bool has(const std::string& tensor) const override { return matrices_.contains(tensor); }
  bool is_stored() const override { return true; }

 private:
  ops::Quantized make(const std::string& name) const override try {
    std::vector<std::byte> bytes(static_cast<size_t>(files_.tensor(name).elements));
    read_piece(files_, {name, 0, std::ssize(bytes), bytes.data(), Dtype::u8});
    return ops::read_gguf_blocks(format_, bytes);
  } catch (const ShapeError& error) {
    fail_blocks(files_, name, format_, fmt::format("is damaged: {}", error.what()));
  }

  Checkpoint files_;
  base::BlockFormat format_;
  std::set<std::string> matrices_;
};

}  // namespace

Checkpoint with_gguf_blocks(Checkpoint c) {
  if (std::ranges::none_of(c.tensors, [](const auto& tensor) { return is_matrix_of_bytes(tensor.second); })) return c;
  const base::BlockFormat format = gguf_format_of(c);
  if (format == base::BlockFormat::none) return c;
  const Checkpoint files = c;
  std::set<std::string> matrices;
  const int64_t values = base::traits_of(format).values, block_bytes = ops::gguf_block_bytes(format);
  for (auto& [name, tensor] : c.tensors) {
    if (!is_matrix_of_bytes(tensor)) continue;
    if (tensor.shape[1] % block_bytes != 0)
      fail_blocks(c, name, format,
                  fmt::format("has rows of {} bytes, which are no whole blocks of {}", tensor.shape[1], block_bytes));
    tensor.shape[1] = tensor.shape[1] / block_bytes * values;
    tensor.elements = num_elements(tensor.shape);
    tensor.dtype = Dtype::f32;
    matrices.insert(name);
  }
  c.quantized = std::make_shared<const StoredGguf>(files, format, std::move(matrices));
  return c;
}

}  // namespace trireme::checkpoint
