#include "trireme/formats/litgpt/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/formats/vocabulary.h"

namespace trireme::formats {
namespace {

constexpr std::string_view kLitBlock = "transformer.h.", kHfBlock = "model.layers.";
constexpr std::string_view kLitEmbedding = "transformer.wte.weight", kHfEmbedding = "model.embed_tokens.weight";
constexpr std::string_view kHead = "lm_head.weight";

/// A module's name; `.weight` and `.bias` follow.
struct NamePair {
  std::string_view lit;
  std::string_view hugging_face;
};

constexpr NamePair kOutside[] = {
    {"transformer.wte", "model.embed_tokens"}, {"transformer.ln_f", "model.norm"}, {"lm_head", "lm_head"}};
constexpr NamePair kInBlock[] = {{"norm_1", "input_layernorm"},       {"attn.proj", "self_attn.o_proj"},
                                 {"attn.norm_q", "self_attn.q_norm"}, {"attn.norm_k", "self_attn.k_norm"},
                                 {"mlp.fc_1", "mlp.gate_proj"},       {"mlp.fc_2", "mlp.up_proj"},
                                 {"mlp.proj", "mlp.down_proj"}};
/// The norm that Llama calls post-attention comes before the MLP; Gemma has further ones around it.
constexpr NamePair kPreNorms[] = {{"norm_2", "post_attention_layernorm"}};
constexpr NamePair kPostNorms[] = {{"post_attention_norm", "post_attention_layernorm"},
                                   {"norm_2", "pre_feedforward_layernorm"},
                                   {"post_mlp_norm", "post_feedforward_layernorm"}};

/// The parts of "transformer.h.12.norm_1.weight".
struct ModuleName {
  std::string_view layer;   ///< "12", empty outside of blocks
  std::string_view module;  ///< "norm_1"
  std::string_view kind;    ///< "weight" or "bias"
};

std::optional<ModuleName> split(std::string_view name, std::string_view block) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  ModuleName parts{.layer = {}, .module = name.substr(0, dot), .kind = name.substr(dot + 1)};
  if (parts.kind != "weight" && parts.kind != "bias") return std::nullopt;
  if (!parts.module.starts_with(block)) return parts;
  parts.module.remove_prefix(block.size());
  const size_t end = parts.module.find('.');
  if (end == std::string_view::npos) return std::nullopt;
  parts.layer = parts.module.substr(0, end);
  parts.module.remove_prefix(end + 1);
  return parts;
}

std::string block_name(std::string_view block, std::string_view layer, std::string_view module, std::string_view kind) {
  return fmt::format("{}{}.{}.{}", block, layer, module, kind);
}

std::optional<std::string_view> translate(std::span<const NamePair> names, std::string_view module,
                                          std::string_view NamePair::* from, std::string_view NamePair::* to) {
  const auto found =
      std::find_if(names.begin(), names.end(), [&](const NamePair& pair) { return pair.*from == module; });
  return found == names.end() ? std::nullopt : std::optional((*found).*to);
}

/// The name in the other convention, or nothing if it has none.
std::optional<std::string> other_name(const ModuleName& parts, const model::ModelConfig& config, bool to_lit) {
  const auto from = to_lit ? &NamePair::hugging_face : &NamePair::lit;
  const auto to = to_lit ? &NamePair::lit : &NamePair::hugging_face;
  if (parts.layer.empty()) {
    const auto module = translate(kOutside, parts.module, from, to);
    return module ? std::optional(fmt::format("{}.{}", *module, parts.kind)) : std::nullopt;
  }
  auto module = translate(kInBlock, parts.module, from, to);
  if (!module)
    module = config.post_norms ? translate(kPostNorms, parts.module, from, to)
                               : translate(kPreNorms, parts.module, from, to);
  if (!module) return std::nullopt;
  return block_name(to_lit ? kLitBlock : kHfBlock, parts.layer, *module, parts.kind);
}

[[noreturn]] void fail_source(const TensorSpec& tensor, const std::string& problem) {
  throw CheckpointError(fmt::format("tensor '{}' {}", tensor.name, problem), "", tensor.name);
}

/// Rows of q, k and v in a fused matrix.
struct FusedRows {
  explicit FusedRows(const model::ModelConfig& config)
      : head(config.head_dim),
        groups(config.num_key_value_heads),
        queries(config.num_attention_heads / config.num_key_value_heads * config.head_dim) {}
  int64_t head;     ///< rows of one head
  int64_t groups;   ///< heads of keys
  int64_t queries;  ///< rows of q in one group
  int64_t rows(int part) const { return groups * (part == 0 ? queries : head); }
  int64_t total() const { return rows(0) + 2 * rows(1); }
};

constexpr std::string_view kParts[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};

/// q, k and v cut out of a fused matrix; `interleaved` is the older layout.
void cut_fused(const TensorSpec& lit, const ModuleName& parts, const FusedRows& fused, bool interleaved,
               std::vector<MappedTensor>& result) {
  if (lit.shape.empty() || lit.shape[0] != fused.total())
    fail_source(lit, fmt::format("has the shape {}; the heads of model_config.yaml make {} rows", shape_text(lit.shape),
                                 fused.total()));
  int64_t begin = 0;
  for (int part = 0; part < 3; ++part) {
    MappedTensor mapped{.target = lit, .pieces = {}};
    mapped.target.name = block_name(kHfBlock, parts.layer, kParts[part], parts.kind);
    mapped.target.shape[0] = fused.rows(part);
    if (interleaved) {
      const int64_t stride = fused.queries + 2 * fused.head, rows = part == 0 ? fused.queries : fused.head;
      const int64_t first = part == 0 ? 0 : fused.queries + (part - 1) * fused.head;
      for (int64_t g = 0; g < fused.groups; ++g)
        mapped.pieces.push_back({.source = lit.name, .begin = g * stride + first, .end = g * stride + first + rows});
    } else {
      mapped.pieces.push_back({.source = lit.name, .begin = begin, .end = begin + fused.rows(part)});
      begin += fused.rows(part);
    }
    result.push_back(std::move(mapped));
  }
}

const TensorSpec* find(const std::vector<TensorSpec>& tensors, std::string_view name) {
  const auto found =
      std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

/// q|k|v of one block, where `q` is the first of them.
MappedTensor fuse(const std::vector<TensorSpec>& tensors, const TensorSpec& q, const ModuleName& parts,
                  const FusedRows& fused) {
  MappedTensor mapped{.target = q, .pieces = {}};
  mapped.target.name = block_name(kLitBlock, parts.layer, "attn.qkv", parts.kind);
  if (mapped.target.shape.empty()) fail_source(q, "has no rows");
  mapped.target.shape[0] = fused.total();
  for (int part = 0; part < 3; ++part) {
    const std::string name = block_name(kHfBlock, parts.layer, kParts[part], parts.kind);
    const TensorSpec* tensor = find(tensors, name);
    if (!tensor) fail_source(q, fmt::format("has no '{}' beside it, and LitGPT holds q, k and v as one", name));
    if (tensor->dtype != q.dtype)
      fail_source(*tensor, fmt::format("has another dtype than '{}', beside which it is stored", q.name));
    mapped.pieces.push_back({.source = name, .begin = 0, .end = fused.rows(part)});
  }
  for (const RowPiece& piece : mapped.pieces) {
    const TensorSpec* tensor = find(tensors, piece.source);
    if (!tensor->shape.empty() && tensor->shape[0] == piece.end) continue;
    fail_source(*tensor, fmt::format("has the shape {}; the heads of config.json make {} rows",
                                     shape_text(tensor->shape), piece.end));
  }
  return mapped;
}

}  // namespace

std::vector<MappedTensor> litgpt_to_hugging_face(const std::vector<TensorSpec>& lit, const model::ModelConfig& config) {
  const FusedRows fused(config);
  std::vector<MappedTensor> result;
  for (const TensorSpec& tensor : lit) {
    if (config.tie_word_embeddings && tensor.name == kHead) continue;
    const std::optional<ModuleName> parts = split(tensor.name, kLitBlock);
    if (parts && !parts->layer.empty() && (parts->module == "attn.qkv" || parts->module == "attn.attn")) {
      cut_fused(tensor, *parts, fused, parts->module == "attn.attn", result);
      continue;
    }
    const std::optional<std::string> name = parts ? other_name(*parts, config, false) : std::nullopt;
    if (!name) fail_source(tensor, "is not a tensor of this model in LitGPT");
    result.push_back(renamed(tensor, *name));
  }
  return result;
}

std::vector<MappedTensor> hugging_face_to_litgpt(const std::vector<TensorSpec>& hugging_face,
                                                 const model::ModelConfig& config) {
  const FusedRows fused(config);
  std::vector<MappedTensor> result;
  for (const TensorSpec& tensor : hugging_face) {
    if (tensor.name.ends_with(".rotary_emb.inv_freq")) continue;  // a buffer that old Llama files carry
    const std::optional<ModuleName> parts = split(tensor.name, kHfBlock);
    const bool attention = parts && !parts->layer.empty();
    if (attention && parts->module == kParts[0]) {
      result.push_back(fuse(hugging_face, tensor, *parts, fused));
    } else if (!attention || (parts->module != kParts[1] && parts->module != kParts[2])) {
      const std::optional<std::string> name = parts ? other_name(*parts, config, true) : std::nullopt;
      if (!name) fail_source(tensor, "has no name in LitGPT");
      result.push_back(renamed(tensor, *name));
    }
  }
  const TensorSpec* embedding = find(hugging_face, kHfEmbedding);
  if (!find(hugging_face, kHead) && embedding) result.push_back(renamed(*embedding, std::string(kHead)));
  return result;
}

bool litgpt_head_is_tied(const TensorSource& lit) {
  const TensorSpec* embedding = find(lit.tensors(), kLitEmbedding);
  const TensorSpec* head = find(lit.tensors(), kHead);
  if (!embedding || !head) return false;
  if (embedding->shape != head->shape || embedding->dtype != head->dtype) return false;
  const int64_t size = size_of(head->dtype), count = num_elements(head->shape), block = (1 << 19) / size;
  std::string a(block * size, '\0'), b = a;
  const auto index = [&](const TensorSpec* tensor) { return static_cast<size_t>(tensor - lit.tensors().data()); };
  for (int64_t begin = 0; begin < count; begin += block) {
    const int64_t end = std::min(count, begin + block);
    lit.read(index(embedding), begin, end, a.data(), head->dtype);
    lit.read(index(head), begin, end, b.data(), head->dtype);
    if (a != b) return false;
  }
  return true;
}

}  // namespace trireme::formats
