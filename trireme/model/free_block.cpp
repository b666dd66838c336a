// A FreeBlock's parameters, values, calls and costs.
#include "trireme/model/free_block.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "trireme/base/error.h"
#include "trireme/model/free_block_documents.h"
#include "trireme/model/free_block_values.h"
#include "trireme/ops/checks.h"

namespace trireme::model {

namespace {

constexpr const char* kEncoderPrefix = "model.encoder.block.";

// The parameters of a block with its indices `by` higher.
void shift_layout(BlockLayout& l, int by) {
  for (int* index : {&l.norm1.weight, &l.qkv.weight, &l.out.weight, &l.norm2.weight, &l.up.weight, &l.down.weight})
    *index += by;
}

FreeParameters free_parameters(const ModelConfig& c, const Parallel& parallel) {
  const int64_t layer = c.free.split_layer;
  BlockParameters block = block_parameters(c, layer, parallel), encoder = block_parameters(c, layer, parallel);
  FreeParameters p{.block = block.layout, .encoder = encoder.layout, .final_norm = {}, .specs = std::move(block.specs)};
  shift_layout(p.encoder, static_cast<int>(p.specs.size()));
  const std::string own = "model.layers." + std::to_string(layer) + ".";
  for (ParameterSpec& spec : encoder.specs) {
    spec.name = kEncoderPrefix + spec.name.substr(own.size());
    p.specs.push_back(std::move(spec));
  }
  const auto add = [&](const char* name, std::vector<int64_t> shape, Initializer::Kind kind, bool decays) {
    p.specs.push_back({.name = name,
                       .shape = std::move(shape),
                       .init = {kind, kind == Initializer::Kind::normal ? c.initializer_range : 0},
                       .decay = decays,
                       .counted = parallel.tp_rank == 0});
    return static_cast<int>(p.specs.size()) - 1;
  };
  using Kind = Initializer::Kind;
  p.zeta = add("model.encoder.zeta", {c.hidden_size}, Kind::normal, false);
  p.final_norm.weight = add("model.encoder.norm.weight", {c.hidden_size}, Kind::ones, false);
  p.readout = add("model.encoder.readout.weight", {c.free.latent_bits, c.hidden_size}, Kind::normal, true);
  if (c.free.injection == Injection::bits) {
    // Zero: training begins with the plain decoder.
    p.sampler = add(kSamplerName, {c.hidden_size, c.free.latent_bits}, Kind::zeros, true);
    return p;
  }
  const int64_t codes = int64_t{1} << c.free.latent_bits, own_codes = codes / parallel.tp_size;
  p.sampler = add(kSamplerName, {own_codes, c.hidden_size}, Kind::normal, true);
  if (parallel.tp_size == 1) return p;
  ParameterSpec& table = p.specs.back();
  table.full_shape = {codes, c.hidden_size};
  table.split_dim = 0;
  table.pieces = {{own_codes * parallel.tp_rank, own_codes * (parallel.tp_rank + 1)}};
  table.counted = true;
  return p;
}

}  // namespace

void check_free(const ModelConfig& c, const Precision& precision, const Parallel& parallel, const Adapters& adapters,
                bool matrices_apart) {
  if (!c.is_free()) return;
  if (parallel.cp_size > 1)
    throw UsageError(
        fmt::format("mesh.cp={} divides sequences, and a Free Transformer's encoder sees whole ones; use mesh.tp with "
                    "mesh.sequence_parallel for long sequences, and mesh.cp 1",
                    parallel.cp_size));
  if (c.free.injection == Injection::table &&
      (!std::has_single_bit(static_cast<unsigned>(parallel.tp_size)) ||
       parallel.tp_size > int64_t{1} << std::min<int64_t>(c.free.latent_bits, 30)))
    throw UsageError(
        fmt::format("mesh.tp={} does not divide the 2^{} codes of the latent; use a power of two, or "
                    "free.injection bits",
                    parallel.tp_size, c.free.latent_bits));
  if (kv_head_sharers(c, parallel) > 1)
    throw UsageError(fmt::format(
        "mesh.tp={} ranks would share the {} key/value heads (model.num_key_value_heads), which is not built for a "
        "Free Transformer; use a mesh.tp that divides them",
        parallel.tp_size, c.num_key_value_heads));
  if (!adapters.empty())
    throw UsageError("adapters (lora.*) are not built for a Free Transformer; train all of it with trireme pretrain");
  if (matrices_apart)
    throw UsageError("Muon is not built for a Free Transformer, whose table of codes is no hidden matrix; take AdamW");
  if (precision.on_gpu)
    throw ProcessorsOnly("a Free Transformer computes on processors only", "set accelerator cpu, or leave free.* out");
  const bool mixed = precision.compute == at::kBFloat16 && !precision.narrow_weights;
  if (precision.compute != at::kDouble && precision.compute != at::kFloat && !mixed)
    throw UsageError(
        "a Free Transformer is trained in 32-true, bf16-mixed or 64-true; other values of precision are not built "
        "for it");
}

FreeBlock::FreeBlock(const ModelConfig& c, const Parallel& parallel, std::shared_ptr<const RotaryTables> rotary)
    : config_(c),
      parallel_(parallel),
      p_(free_parameters(c, parallel)),
      widths_(block_widths(c, parallel)),
      rotary_(std::move(rotary)),
      module_(dropout_module_key("model.encoder")) {}

FreeBlock::Half FreeBlock::encoder() const { return {p_.encoder, FreeSaved::encoder, false, "encoder."}; }
FreeBlock::Half FreeBlock::block() const { return {p_.block, FreeSaved::block, true, ""}; }

Dropout FreeBlock::dropout_of(const Half& half, const char* what, double p) const {
  return block_dropout(config_.free.split_layer, std::string(half.name) + what, p);
}

ops::AttentionDropout FreeBlock::weight_dropout(const UnitTensors& t, const Half& half) const {
  const Dropout dropout = dropout_of(half, "attention.weights", config_.dropout.attention);
  if (!dropout.drops(t.random)) return {};
  const at::Tensor& keys = t.work[FreeWork::keys];
  dropout_keys(keys, t.random, dropout.module, t.shape, parallel_);
  return {.p = dropout.p, .keys = keys, .first_head = widths_.heads * parallel_.tp_rank};
}

ops::AttentionShape FreeBlock::causal_shape(const UnitTensors& t) const {
  ops::AttentionShape shape = attention_shape(t.shape.micro_batch, t.shape.sequence, widths_, {});
  shape.dropout = weight_dropout(t, block());
  return shape;
}

ops::AttentionBlockShape FreeBlock::span_shape(const DocumentSpan& span, const ops::AttentionDropout& dropout) const {
  ops::AttentionBlockShape shape = all_shape(span.batch, span.tokens);
  if (dropout.p == 0) return shape;
  shape.dropout = dropout;
  shape.dropout.keys = span.rows(dropout.keys.unsqueeze(1)).squeeze(2);
  shape.dropout.first_key = span.begin;
  return shape;
}

std::string FreeBlock::layer_of(int parameter) const {
  if (parameter >= p_.zeta) return name() + ".latent";
  const bool encodes = parameter >= p_.encoder.norm1.weight;
  const BlockLayout& l = encodes ? p_.encoder : p_.block;
  return name() + (encodes ? ".encoder" : "") + (l.is_attention(parameter) ? ".attention" : ".mlp");
}

std::vector<Measure> FreeBlock::measures() const {
  return {{"kl", 0}, {"hinge", config_.free.kl_weight}, {"above", 0}};
}

int64_t FreeBlock::chunk_rows(int64_t tokens) const { return ops::cross_entropy_chunk_rows(tokens, own_codes()); }

ops::AttentionBlockShape FreeBlock::all_shape(int64_t batch, int64_t tokens) const {
  return {.batch = batch,
          .queries = tokens,
          .keys = tokens,
          .num_heads = widths_.heads,
          .num_kv_heads = widths_.kv_heads,
          .head_dim = widths_.head_dim};
}

UnitValues FreeBlock::values(const BatchShape& shape, const Precision& p) const {
  const LocalRows local = local_rows(parallel_, shape);
  const int64_t tokens = local.tokens, rows = local.rows, width = widths_.width, bits = config_.free.latent_bits;
  const at::ScalarType c = p.compute, s = p.state;
  UnitValues v;
  v.output = {"output", {rows, width}, c};
  for (const Half& half : {encoder(), block()}) {
    const std::string of = half.causal ? "" : "encoder ";
    v.saved.put(half.saved, {{of + "qkv", {tokens, widths_.qkv_width()}, c},
                             {of + "attended", {tokens, widths_.q_width()}, c},
                             {of + "lse", {shape.micro_batch, widths_.heads, shape.sequence}, s},
                             {of + "mid", {rows, width}, c},
                             {of + "rstd of mid", {rows}, s},
                             {of + "hidden", {tokens, 2 * widths_.mlp}, c}});
  }
  v.saved[FreeSaved::rstd_input] = {"rstd of input", {rows}, s};
  v.saved[FreeSaved::rstd_zeta] = {"rstd of zeta", {1}, s};
  v.saved[FreeSaved::encoded] = {"encoded", {rows, width}, c};
  v.saved[FreeSaved::rstd_encoded] = {"rstd of encoded", {rows}, s};
  v.saved[FreeSaved::logits] = {"bit logits", {tokens, bits}, s};
  v.saved[FreeSaved::codes] = {"codes", {tokens}, at::kLong};
  v.saved[FreeSaved::injected] = {"injected", {rows, width}, c};
  v.saved[FreeSaved::rstd_queries] = {"rstd of queries", {rows}, s};
  v.saved[FreeSaved::rstd_injected] = {"rstd of injected", {rows}, s};

  const int64_t attention =
      std::max({ops::attention_workspace_bytes(attention_shape(shape.micro_batch, shape.sequence, widths_, {}), c),
                ops::attention_block_workspace_bytes(all_shape(shape.micro_batch, shape.sequence), c),
                ops::attention_block_workspace_bytes(all_shape(1, shape.sequence), c)});
  for (Slots* work : {&v.forward_work, &v.backward_work}) {
    (*work)[FreeWork::normed] = {"normed", {tokens, width}, c};
    (*work)[FreeWork::activated] = {"activated", {tokens, widths_.mlp}, c};
    (*work)[FreeWork::attention] = {"attention", {attention}, at::kByte};
    if (sequence_parallel()) (*work)[FreeWork::reduced_rows] = {"reduced rows", {rows, width}, c};
    (*work)[FreeWork::zeta_normed] = {"zeta normed", {1, width}, c};
    if (has_table() && parallel_.tp_size > 1) (*work)[FreeWork::local_codes] = {"local codes", {tokens}, at::kLong};
    if (!has_table()) (*work)[FreeWork::signs] = {"signs", {tokens, bits}, c};
  }
  v.forward_work[FreeWork::zeta_query] = {"zeta query", {1, widths_.q_width()}, c};
  v.forward_work[FreeWork::keys] = {"counters", {tokens}, at::kInt};
  if (config_.dropout.any()) v.backward_work[FreeWork::keys] = {"counters", {tokens}, at::kInt};

  Slots& b = v.backward_work;
  b[FreeWork::d_qkv] = {"d_qkv", {tokens, widths_.qkv_width()}, c};
  b[FreeWork::d_attended] = {"d_attended", {tokens, widths_.q_width()}, c};
  if (ops::is_narrow(c)) b[FreeWork::d_qkv_wide] = {"d_qkv in fp32", {tokens, widths_.qkv_width()}, s};
  b[FreeWork::d_injected] = {"d_injected", {rows, width}, c};
  b[FreeWork::d_encoded] = {"d_encoded", {rows, width}, c};
  b[FreeWork::d_logits] = {"d_logits", {tokens, bits}, s};
  if (ops::is_narrow(c))
    b[FreeWork::d_logits_narrow] = {"d_logits in " + std::string(at::toString(c)), {rows, bits}, c};
  if (has_table()) {
    b[FreeWork::scores] = {"scores of codes", {chunk_rows(tokens), own_codes()}, s};
    b[FreeWork::order] = {"order", {tokens}, at::kLong};
  } else {
    b[FreeWork::scores] = {"d_signs", {rows, bits}, s};
  }
  b[FreeWork::parts] = {"gradients of vectors", {FreePart::num_parts, width}, s};
  b[FreeWork::d_zeta_query_wide] = {"d_zeta query in fp32", {widths_.q_width()}, s};
  b[FreeWork::d_zeta_query] = {"d_zeta query", {1, widths_.q_width()}, c};
  b[FreeWork::d_zeta_normed] = {"d_zeta normed", {1, width}, c};
  b[FreeWork::d_zeta] = {"d_zeta", {1, width}, c};
  if (sequence_parallel()) {
    b[FreeWork::readout_gradient] = {"gradient of the readout", {bits, width}, s};
    if (!has_table()) b[FreeWork::sampler_gradient] = {"gradient of the injection", {width, bits}, s};
  }
  return v;
}

// Without the encoder: its sums of out and down.
std::vector<TrafficRow> FreeBlock::generation_traffic(const GenerationShape& shape, const Precision& p) const {
  std::vector<TrafficRow> rows = traffic({1, shape.rows}, p).forward;
  if (!shape.begins && !rows.empty()) rows.erase(rows.begin(), rows.begin() + 2);
  return rows;
}

UnitTraffic FreeBlock::traffic(const BatchShape& shape, const Precision& p) const {
  const TensorTraffic tp(parallel_);
  const int64_t tokens = local_rows(parallel_, shape).tokens, width = widths_.width, bits = config_.free.latent_bits,
                boundary = tokens * width;
  UnitTraffic u;
  std::vector<TrafficRow>& f = u.recompute;
  const auto gather = [&](std::vector<TrafficRow>& rows) { tp.gather(rows, p.compute, boundary); };
  const auto reduce = [&](std::vector<TrafficRow>& rows) { tp.reduce(rows, p.compute, boundary); };
  gather(f);  // the encoder: keys, out, up, down
  reduce(f);
  gather(f);
  reduce(f);
  tp.gather(f, p.state, tokens * bits);
  if (has_table()) reduce(f);
  gather(f);  // the block: queries, keys, out, up
  gather(f);
  reduce(f);
  gather(f);
  u.forward = u.recompute;
  reduce(u.forward);

  std::vector<TrafficRow>& b = u.backward;
  const auto half = [&] {
    gather(b);
    reduce(b);
    gather(b);
    gather(b);
  };
  const auto keys = [&] {
    reduce(b);
    gather(b);
  };
  half();
  keys();  // of queries
  keys();
  if (has_table()) {
    gather(b);
    tp.sum(b, p.state, tokens * bits);
  }
  half();
  tp.sum(b, p.compute, width);
  keys();
  if (!sequence_parallel()) return u;
  tp.sum(b, p.state, FreePart::num_summed * width);
  tp.sum(b, p.state, bits * width);
  if (!has_table()) tp.sum(b, p.state, bits * width);
  return u;
}

double FreeBlock::forward_flops(const BatchShape& shape) const {
  const double tokens = double(shape.tokens()), width = double(widths_.width), heads = double(widths_.q_width()),
               products = width * double(widths_.qkv_width()) + heads * width + 3 * width * double(widths_.mlp);
  // A table costs nothing forward, and one product backward; backward counts as two.
  const double sampler = has_table() ? double(own_codes()) / 2 : double(config_.free.latent_bits);
  return 2 * tokens * (2 * products + width * (double(config_.free.latent_bits) + sampler)) +
         4 * tokens * 1.5 * double(shape.sequence) * heads;
}

}  // namespace trireme::model
