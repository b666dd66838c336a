#include "trireme/model/block_layout.h"

#include <fmt/format.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::model {
namespace {

// Orders of the parameters: block_parameters() below.
const BlockLayout kLlama{.norm1 = {.weight = 0},
                         .qkv = {.weight = 1, .parts = 3},
                         .out = {.weight = 4},
                         .norm2 = {.weight = 5},
                         .up = {.weight = 6, .parts = 2},
                         .down = {.weight = 8},
                         .gated = true,
                         .rotary = true};
const BlockLayout kGpt2{.norm1 = {.weight = 0, .bias = 1},
                        .qkv = {.weight = 2, .bias = 3, .in_out = true},
                        .out = {.weight = 4, .bias = 5, .in_out = true},
                        .norm2 = {.weight = 6, .bias = 7},
                        .up = {.weight = 8, .bias = 9, .in_out = true},
                        .down = {.weight = 10, .bias = 11, .in_out = true},
                        .gated = false,
                        .rotary = false};

// Divides `size` elements evenly and names the pieces of this rank.
Piece part(int64_t size, int64_t parts, int64_t number) { return {size / parts * number, size / parts * (number + 1)}; }
Piece behind(Piece piece, int64_t offset) { return {piece.begin + offset, piece.end + offset}; }

// Turns the description of a whole parameter into that of this rank's pieces of one dimension.
void divide(ParameterSpec& p, int dim, const std::vector<Piece>& pieces) {
  p.full_shape = p.shape;
  p.split_dim = dim;
  p.pieces = pieces;
  p.shape[static_cast<size_t>(dim)] = 0;
  for (const Piece& piece : pieces) p.shape[static_cast<size_t>(dim)] += piece.size();
}

void check_axis(const char* axis, int64_t size, const char* key, int64_t value, bool divides) {
  if (divides) return;
  std::vector<std::string> legal;
  for (int64_t n = 1; n <= value; ++n)
    if (value % n == 0) legal.push_back(std::to_string(n));
  throw UsageError(fmt::format("{}={} does not divide model.{}={}; use {} in {{{}}}", axis, size, key, value, axis,
                               base::join(legal, ", ")));
}

}  // namespace

const BlockLayout& block_layout(Architecture architecture) {
  return architecture == Architecture::llama ? kLlama : kGpt2;
}

void check_divisible(const ModelConfig& c, const Parallel& p) {
  const int64_t tp = p.tp_size, kv = c.num_key_value_heads;
  check_axis("mesh.tp", tp, "num_attention_heads", c.num_attention_heads, c.num_attention_heads % tp == 0);
  check_axis("mesh.tp", tp, "intermediate_size", c.intermediate_size, c.intermediate_size % tp == 0);
  // Key/value heads are divided, or each is held by several neighbours; GPT-2's lie in one matrix with the queries.
  const bool copies = c.architecture == Architecture::llama && tp % kv == 0;
  if (kv % tp != 0 && !copies)
    throw UsageError(fmt::format(
        "mesh.tp={} neither divides model.num_key_value_heads={} nor is a multiple of it; use a mesh.tp of {}", tp, kv,
        c.architecture == Architecture::llama ? "a divisor or a multiple of the key/value heads" : "a divisor"));
  if (p.cp_size == 1 || p.context == Parallel::Context::ring) return;
  const BlockWidths w = block_widths(c, p);
  if (w.heads % p.cp_size != 0)
    throw UsageError(fmt::format(
        "ulysses attention divides the {} of a rank (model.num_attention_heads={} / mesh.tp={}) over mesh.cp={}, and "
        "they do not divide; use a mesh.cp that divides them, or ring attention",
        base::plural(w.heads, "query head"), c.num_attention_heads, tp, p.cp_size));
  if (w.kv_heads % p.cp_size != 0 && p.cp_size % w.kv_heads != 0)
    throw UsageError(fmt::format(
        "ulysses attention: mesh.cp={} neither divides the {} of a rank (model.num_key_value_heads={}, mesh.tp={}) nor "
        "is a multiple of them; use a mesh.cp that does, or ring attention",
        p.cp_size, base::plural(w.kv_heads, "key/value head"), kv, tp));
}

int64_t kv_head_sharers(const ModelConfig& config, const Parallel& parallel) {
  return config.num_key_value_heads % parallel.tp_size == 0 ? 1 : parallel.tp_size / config.num_key_value_heads;
}

BlockWidths block_widths(const ModelConfig& c, const Parallel& parallel) {
  return {.width = c.hidden_size,
          .heads = c.num_attention_heads / parallel.tp_size,
          .kv_heads = c.num_key_value_heads * kv_head_sharers(c, parallel) / parallel.tp_size,
          .head_dim = c.head_dim,
          .mlp = c.intermediate_size / parallel.tp_size};
}

std::vector<ParameterSpec> block_parameters(const ModelConfig& c, int64_t layer, const Parallel& parallel) {
  const int64_t width = c.hidden_size, heads = c.num_attention_heads * c.head_dim,
                kv = c.num_key_value_heads * c.head_dim, mlp = c.intermediate_size;
  using Kind = Initializer::Kind;
  const Initializer normal{Kind::normal, c.initializer_range}, ones{Kind::ones, 0}, zeros{Kind::zeros, 0};
  // Projections back into the residual stream start smaller, as in GPT-2, so that its variance stays put.
  const Initializer residual{Kind::normal, c.initializer_range / std::sqrt(2.0 * double(c.num_hidden_layers))};
  const int64_t tp = parallel.tp_size, rank = parallel.tp_rank, sharers = kv_head_sharers(c, parallel);
  const Piece my_q = part(heads, tp, rank), my_kv = part(kv, tp / sharers, rank / sharers),
              my_mlp = part(mlp, tp, rank);
  std::vector<ParameterSpec> specs;
  if (c.architecture == Architecture::llama) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    specs = {{p + "input_layernorm.weight", {width}, ones, false, false},
             {p + "self_attn.q_proj.weight", {heads, width}, normal, true, false},
             {p + "self_attn.k_proj.weight", {kv, width}, normal, true, true},
             {p + "self_attn.v_proj.weight", {kv, width}, normal, true, true},
             {p + "self_attn.o_proj.weight", {width, heads}, residual, true, false},
             {p + "post_attention_layernorm.weight", {width}, ones, false, false},
             {p + "mlp.gate_proj.weight", {mlp, width}, normal, true, false},
             {p + "mlp.up_proj.weight", {mlp, width}, normal, true, true},
             {p + "mlp.down_proj.weight", {width, mlp}, residual, true, false}};
    if (tp == 1) return specs;
    divide(specs[1], 0, {my_q});
    for (int i : {2, 3}) {
      divide(specs[i], 0, {my_kv});
      specs[i].counted = rank % sharers == 0;
    }
    divide(specs[4], 1, {my_q});
    for (int i : {6, 7}) divide(specs[i], 0, {my_mlp});
    divide(specs[8], 1, {my_mlp});
  } else {
    const std::string p = "transformer.h." + std::to_string(layer) + ".";
    specs = {{p + "ln_1.weight", {width}, ones, false, false},
             {p + "ln_1.bias", {width}, zeros, false, false},
             {p + "attn.c_attn.weight", {width, heads + 2 * kv}, normal, true, false},
             {p + "attn.c_attn.bias", {heads + 2 * kv}, zeros, false, false},
             {p + "attn.c_proj.weight", {heads, width}, residual, true, false},
             {p + "attn.c_proj.bias", {width}, zeros, false, false},
             {p + "ln_2.weight", {width}, ones, false, false},
             {p + "ln_2.bias", {width}, zeros, false, false},
             {p + "mlp.c_fc.weight", {width, mlp}, normal, true, false},
             {p + "mlp.c_fc.bias", {mlp}, zeros, false, false},
             {p + "mlp.c_proj.weight", {mlp, width}, residual, true, false},
             {p + "mlp.c_proj.bias", {width}, zeros, false, false}};
    if (tp == 1) return specs;
    const std::vector<Piece> qkv = {my_q, behind(my_kv, heads), behind(my_kv, heads + kv)};
    divide(specs[2], 1, qkv);
    divide(specs[3], 0, qkv);
    divide(specs[4], 0, {my_q});
    divide(specs[8], 1, {my_mlp});
    divide(specs[9], 0, {my_mlp});
    divide(specs[10], 0, {my_mlp});
  }
  for (ParameterSpec& p : specs)
    if (p.split_dim < 0) p.counted = rank == 0;
  return specs;
}

}  // namespace trireme::model
