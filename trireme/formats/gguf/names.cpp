#include "trireme/formats/gguf/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/formats/vocabulary.h"

namespace trireme::formats {
namespace {

/// How values or rows differ, of weights and biases.
enum class RowLayout { same, query, key, plus_one, transposed };

/// Names without ".weight" or ".bias"; # stands for the block's number.
struct NameRow {
  std::string_view gguf;
  std::string_view hugging_face;
  RowLayout layout = RowLayout::same;
};

struct NameTable {
  std::string_view architecture;
  std::vector<NameRow> rows;
};

std::vector<NameRow> decoder(RowLayout query, RowLayout key, RowLayout norm, std::vector<NameRow> more) {
  std::vector<NameRow> rows{{"token_embd", "model.embed_tokens"},
                            {"output_norm", "model.norm", norm},
                            {"output", "lm_head"},
                            {"blk.#.attn_norm", "model.layers.#.input_layernorm", norm},
                            {"blk.#.attn_q", "model.layers.#.self_attn.q_proj", query},
                            {"blk.#.attn_k", "model.layers.#.self_attn.k_proj", key},
                            {"blk.#.attn_v", "model.layers.#.self_attn.v_proj"},
                            {"blk.#.attn_output", "model.layers.#.self_attn.o_proj"},
                            {"blk.#.ffn_gate", "model.layers.#.mlp.gate_proj"},
                            {"blk.#.ffn_up", "model.layers.#.mlp.up_proj"},
                            {"blk.#.ffn_down", "model.layers.#.mlp.down_proj"}};
  rows.insert(rows.end(), more.begin(), more.end());
  return rows;
}

const std::vector<NameTable>& tables() {
  using enum RowLayout;
  const NameRow ffn_norm{"blk.#.ffn_norm", "model.layers.#.post_attention_layernorm"};
  const auto head_norms = [](RowLayout norm) {
    return std::vector<NameRow>{{"blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm", norm},
                                {"blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm", norm}};
  };
  const auto with = [](std::vector<NameRow> rows, const std::vector<NameRow>& more) {
    rows.insert(rows.end(), more.begin(), more.end());
    return rows;
  };
  const std::vector<NameRow> gemma{{"blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm", plus_one},
                                   {"blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm", plus_one},
                                   {"blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm", plus_one}};
  static const std::vector<NameTable> all{{"llama", decoder(query, key, same, {ffn_norm})},
                                          {"qwen2", decoder(same, same, same, {ffn_norm})},
                                          {"qwen3", decoder(same, same, same, with({ffn_norm}, head_norms(same)))},
                                          {"gemma2", decoder(same, same, plus_one, gemma)},
                                          {"gemma3", decoder(same, same, plus_one, with(gemma, head_norms(plus_one)))},
                                          {"gpt2",
                                           {{"token_embd", "transformer.wte"},
                                            {"position_embd", "transformer.wpe"},
                                            {"output_norm", "transformer.ln_f"},
                                            {"output", "lm_head"},
                                            {"blk.#.attn_norm", "transformer.h.#.ln_1"},
                                            {"blk.#.attn_qkv", "transformer.h.#.attn.c_attn", transposed},
                                            {"blk.#.attn_output", "transformer.h.#.attn.c_proj", transposed},
                                            {"blk.#.ffn_norm", "transformer.h.#.ln_2"},
                                            {"blk.#.ffn_up", "transformer.h.#.mlp.c_fc", transposed},
                                            {"blk.#.ffn_down", "transformer.h.#.mlp.c_proj", transposed}}}};
  return all;
}

const std::vector<NameRow>& rows_of(std::string_view architecture, const std::string& path) {
  gguf_family(architecture, path);  // refuses unknown ones
  return std::ranges::find(tables(), architecture, &NameTable::architecture)->rows;
}

/// A name taken apart: "model.layers.3.mlp.up_proj.weight" is {"model.layers.#.mlp.up_proj", 3, ".weight"}.
struct TensorName {
  std::string stem;
  std::string number;
  std::string suffix;
};

TensorName take_apart(const std::string& name) {
  TensorName parts;
  for (const char* suffix : {".weight", ".bias"})
    if (name.ends_with(suffix)) parts.suffix = suffix;
  const std::string stem = name.substr(0, name.size() - parts.suffix.size());
  for (size_t begin = 0; begin <= stem.size();) {
    const size_t end = std::min(stem.find('.', begin), stem.size());
    const std::string part = stem.substr(begin, end - begin);
    const bool digits =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (digits && parts.number.empty()) {
      parts.number = part;
      parts.stem += '#';
    } else {
      parts.stem += part;
    }
    if (end < stem.size()) parts.stem += '.';
    begin = end + 1;
  }
  return parts;
}

std::string put_together(std::string_view pattern, const TensorName& parts) {
  std::string name(pattern);
  if (const size_t hash = name.find('#'); hash != std::string::npos) name.replace(hash, 1, parts.number);
  return name + parts.suffix;
}

/// The rows of each head, reordered: to GGUF from halves to pairs, back from pairs to halves.
std::vector<RowPiece> rotary_rows(const TensorSpec& source, int64_t heads, bool to_gguf, const std::string& path) {
  const int64_t rows = source.shape.empty() ? 0 : source.shape[0];
  if (heads < 1 || rows % heads != 0 || rows / heads % 2 != 0)
    throw CheckpointError(fmt::format("tensor '{}' {} of {} does not divide into {} heads of even width", source.name,
                                      shape_text(source.shape), path, heads),
                          path, source.name);
  const int64_t width = rows / heads;
  std::vector<RowPiece> pieces;
  for (int64_t head = 0; head < heads; ++head)
    pieces.push_back(
        {.source = source.name, .begin = head * width, .end = (head + 1) * width, .split = to_gguf ? 2 : width / 2});
  return pieces;
}

MappedTensor mapped(const TensorSpec& source, const std::string& name, RowLayout layout, GgufHeads heads, bool to_gguf,
                    const std::string& path) {
  MappedTensor result = renamed(source, name);
  if (layout == RowLayout::query || layout == RowLayout::key) {
    result.pieces = rotary_rows(source, layout == RowLayout::query ? heads.heads : heads.kv_heads, to_gguf, path);
  } else if (layout == RowLayout::plus_one) {
    result.add = to_gguf ? 1 : -1;
  } else if (layout == RowLayout::transposed && source.shape.size() == 2) {
    std::swap(result.target.shape[0], result.target.shape[1]);
    result.transpose = true;
  }
  return result;
}

[[noreturn]] void refuse_name(const std::string& name, std::string_view architecture, const std::string& path) {
  throw CheckpointError(fmt::format("{} has the tensor '{}', which no model of architecture {} has: without it, "
                                    "the result would be another model",
                                    path, name, architecture),
                        path, name);
}

bool is_buffer(const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

}  // namespace

std::string with_prefix(std::string_view architecture, const std::string& name) {
  const bool bare = architecture == "gpt2" && !name.starts_with("transformer.") && !name.starts_with("lm_head.");
  return bare ? "transformer." + name : name;
}

std::span<const GgufFamily> gguf_families() {
  static const std::vector<GgufConfigRow> decoder{{"context_length", "max_position_embeddings"},
                                                  {"embedding_length", "hidden_size"},
                                                  {"block_count", "num_hidden_layers"},
                                                  {"feed_forward_length", "intermediate_size"},
                                                  {"attention.head_count", "num_attention_heads"},
                                                  {"attention.layer_norm_rms_epsilon", "rms_norm_eps", false}};
  static const std::vector<GgufConfigRow> gpt2{
      {"context_length", "n_positions"},  {"embedding_length", "n_embd"},
      {"block_count", "n_layer"},         {"feed_forward_length", "n_inner"},
      {"attention.head_count", "n_head"}, {"attention.layer_norm_epsilon", "layer_norm_epsilon", false}};
  static const std::vector<GgufFamily> all{
      {"llama", {"llama", "mistral"}, "LlamaForCausalLM", "silu", decoder},
      {"qwen2", {"qwen2"}, "Qwen2ForCausalLM", "silu", decoder},
      {"qwen3", {"qwen3"}, "Qwen3ForCausalLM", "silu", decoder},
      {"gemma2", {"gemma2"}, "Gemma2ForCausalLM", "gelu_pytorch_tanh", decoder, true},
      {"gemma3", {"gemma3_text"}, "Gemma3ForCausalLM", "gelu_pytorch_tanh", decoder, true},
      {"gpt2", {"gpt2"}, "GPT2LMHeadModel", "gelu_new", gpt2, false, true}};
  return all;
}

const GgufFamily& gguf_family(std::string_view architecture, const std::string& path) {
  for (const GgufFamily& family : gguf_families())
    if (family.architecture == architecture) return family;
  throw CheckpointError(fmt::format("{} holds a model of architecture {}; of GGUF's architectures Trireme knows llama "
                                    "(Llama, TinyLlama, SmolLM2, Mistral), qwen2, qwen3, gemma2, gemma3 and gpt2",
                                    path, architecture),
                        path);
}

std::vector<MappedTensor> gguf_to_hugging_face(std::string_view architecture, std::span<const TensorSpec> tensors,
                                               GgufHeads heads, const std::string& path) {
  const std::vector<NameRow>& rows = rows_of(architecture, path);
  std::vector<MappedTensor> map;
  for (const TensorSpec& tensor : tensors) {
    if (tensor.name == "rope_freqs.weight") continue;
    const TensorName parts = take_apart(tensor.name);
    const auto row = std::ranges::find(rows, parts.stem, &NameRow::gguf);
    if (row == rows.end() || parts.suffix.empty()) refuse_name(tensor.name, architecture, path);
    map.push_back(mapped(tensor, put_together(row->hugging_face, parts), row->layout, heads, false, path));
  }
  return map;
}

std::vector<MappedTensor> hugging_face_to_gguf(std::string_view architecture, std::span<const TensorSpec> tensors,
                                               GgufHeads heads, bool tied, const std::string& path) {
  const std::vector<NameRow>& rows = rows_of(architecture, path);
  std::vector<MappedTensor> map;
  for (const TensorSpec& tensor : tensors) {
    if (is_buffer(tensor.name) || (tied && tensor.name == "lm_head.weight")) continue;
    const TensorName parts = take_apart(with_prefix(architecture, tensor.name));
    const auto row = std::ranges::find(rows, parts.stem, &NameRow::hugging_face);
    if (row == rows.end() || parts.suffix.empty()) refuse_name(tensor.name, architecture, path);
    map.push_back(mapped(tensor, put_together(row->gguf, parts), row->layout, heads, true, path));
  }
  return map;
}

}  // namespace trireme::formats
