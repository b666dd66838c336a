#include "trireme/model/block_layout.h"

#include <fmt/format.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/model/adapter_parameters.h"

namespace trireme::model {
namespace {

// Part `number` of `size` elements in equal parts.
Piece part(int64_t size, int64_t parts, int64_t number) { return {size / parts * number, size / parts * (number + 1)}; }
Piece behind(Piece piece, int64_t offset) { return {piece.begin + offset, piece.end + offset}; }

void check_axis(const char* axis, int64_t size, const char* key, int64_t value, bool divides) {
  if (divides) return;
  std::vector<std::string> legal;
  for (int64_t n = 1; n <= value; ++n)
    if (value % n == 0) legal.push_back(std::to_string(n));
  throw UsageError(fmt::format("{}={} does not divide model.{}={}; use {} in {{{}}}", axis, size, key, value, axis,
                               base::join(legal, ", ")));
}

}  // namespace

void check_divisible(const ModelConfig& c, const Parallel& p) {
  const int64_t tp = p.tp_size, kv = c.num_key_value_heads;
  check_axis("mesh.tp", tp, "num_attention_heads", c.num_attention_heads, c.num_attention_heads % tp == 0);
  check_axis("mesh.tp", tp, "intermediate_size", c.intermediate_size, c.intermediate_size % tp == 0);
  // Ranks divide the key/value heads, or several neighbours hold each. GPT-2's cannot be copied: they are in one matrix
  // with the queries.
  const bool copies = c.architecture != Architecture::gpt2 && tp % kv == 0;
  if (kv % tp != 0 && !copies)
    throw UsageError(fmt::format(
        "mesh.tp={} neither divides model.num_key_value_heads={} nor is a multiple of it; use a mesh.tp of {}", tp, kv,
        c.architecture != Architecture::gpt2 ? "a divisor or a multiple of the key/value heads" : "a divisor"));
  if (p.cp_size == 1 || p.context == Context::ring) return;
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

namespace {

using Kind = Initializer::Kind;
constexpr Initializer kZeros{Kind::zeros, 0}, kOnes{Kind::ones, 0};

/// Lists the parameters of one block in their order, and divides them over the tensor-parallel ranks.
class BlockBuilder {
 public:
  BlockBuilder(const ModelConfig& c, int64_t layer, const Parallel& parallel)
      : c_(c), layer_(layer), tp_(parallel.tp_size), rank_(parallel.tp_rank), sharers_(kv_head_sharers(c, parallel)) {
    my_q_ = part(heads_, tp_, rank_);
    my_kv_ = part(kv_, tp_ / sharers_, rank_ / sharers_);
    my_mlp_ = part(c.intermediate_size, tp_, rank_);
    // Projections into the residual stream start smaller, as in GPT-2, so that its variance does not grow.
    residual_.stddev /= std::sqrt(2.0 * double(c.num_hidden_layers));
  }

  BlockParameters build(const Adapters& adapters) {
    c_.architecture == Architecture::gpt2 ? gpt2() : llama_like();
    BlockLayout& l = b_.layout;
    for (Product* product : {&l.qkv, &l.out, &l.up, &l.down}) adapt(*product, adapters);
    for (ParameterSpec& p : b_.specs)
      if (p.split_dim < 0) p.counted = rank_ == 0;
    return std::move(b_);
  }

 private:
  void llama_like() {
    BlockLayout& l = b_.layout;
    prefix_ = "model.layers." + std::to_string(layer_) + ".";
    l.norm1 = norm("input_layernorm");
    l.qkv = {.weight = next(), .parts = 3};
    matrix("self_attn.q_proj.weight", {heads_, width_}, normal_, 0, {my_q_});
    matrix("self_attn.k_proj.weight", {kv_, width_}, normal_, 0, {my_kv_}, true);
    matrix("self_attn.v_proj.weight", {kv_, width_}, normal_, 0, {my_kv_}, true);
    if (c_.attention_bias) {
      l.qkv.bias = next();
      vector("self_attn.q_proj.bias", heads_, kZeros, {my_q_});
      vector("self_attn.k_proj.bias", kv_, kZeros, {my_kv_}, true);
      vector("self_attn.v_proj.bias", kv_, kZeros, {my_kv_}, true);
    }
    for (ParameterSpec& p : b_.specs)
      if (p.split_dim == 0 && p.pieces.front() == my_kv_ && p.joined) p.counted = rank_ % sharers_ == 0;
    if (c_.query_key_norm) {
      l.query_norm = next();
      vector("self_attn.q_norm.weight", c_.head_dim, norm_weight_);
      l.key_norm = next();
      vector("self_attn.k_norm.weight", c_.head_dim, norm_weight_);
    }
    l.out = {.weight = next()};
    matrix("self_attn.o_proj.weight", {width_, heads_}, residual_, 1, {my_q_});
    l.out.bias = bias(c_.attention_out_bias, "self_attn.o_proj.bias");
    if (c_.post_norms) l.post1 = norm("post_attention_layernorm");
    l.norm2 = norm(c_.post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm");
    l.up = {.weight = next(), .parts = 2};
    matrix("mlp.gate_proj.weight", {mlp_, width_}, normal_, 0, {my_mlp_});
    matrix("mlp.up_proj.weight", {mlp_, width_}, normal_, 0, {my_mlp_}, true);
    if (c_.mlp_bias) {
      l.up.bias = next();
      vector("mlp.gate_proj.bias", mlp_, kZeros, {my_mlp_});
      vector("mlp.up_proj.bias", mlp_, kZeros, {my_mlp_}, true);
    }
    l.down = {.weight = next()};
    matrix("mlp.down_proj.weight", {width_, mlp_}, residual_, 1, {my_mlp_});
    l.down.bias = bias(c_.mlp_bias, "mlp.down_proj.bias");
    if (c_.post_norms) l.post2 = norm("post_feedforward_layernorm");
  }

  void gpt2() {
    BlockLayout& l = b_.layout;
    prefix_ = "transformer.h." + std::to_string(layer_) + ".";
    const std::vector<Piece> qkv = {my_q_, behind(my_kv_, heads_), behind(my_kv_, heads_ + kv_)};
    l.norm1 = norm("ln_1");
    l.qkv = {.weight = next(), .bias = next() + 1, .in_out = true};
    matrix("attn.c_attn.weight", {width_, heads_ + 2 * kv_}, normal_, 1, qkv);
    vector("attn.c_attn.bias", heads_ + 2 * kv_, kZeros, qkv);
    l.out = {.weight = next(), .bias = next() + 1, .in_out = true};
    matrix("attn.c_proj.weight", {heads_, width_}, residual_, 0, {my_q_});
    vector("attn.c_proj.bias", width_, kZeros);
    l.norm2 = norm("ln_2");
    l.up = {.weight = next(), .bias = next() + 1, .in_out = true};
    matrix("mlp.c_fc.weight", {width_, mlp_}, normal_, 1, {my_mlp_});
    vector("mlp.c_fc.bias", mlp_, kZeros, {my_mlp_});
    l.down = {.weight = next(), .bias = next() + 1, .in_out = true};
    matrix("mlp.c_proj.weight", {mlp_, width_}, residual_, 0, {my_mlp_});
    vector("mlp.c_proj.bias", width_, kZeros);
  }

  // Adds the adapters of a product's parts.
  void adapt(Product& product, const Adapters& adapters) {
    int64_t column = 0;
    for (int i = 0; i < product.parts; ++i) {
      const ParameterSpec w = b_.specs[static_cast<size_t>(product.weight + i)];
      const size_t out = product.in_out ? 1 : 0;
      const std::string module = w.name.substr(0, w.name.rfind(".weight"));
      const int64_t begin = column;
      column += w.shape[out];
      const auto found = adapters.modules.find(module);
      if (found == adapters.modules.end()) continue;
      if (sharers_ > 1 && product.parts == 3 && i > 0)
        throw UsageError(
            fmt::format("{} has an adapter, and mesh.tp={} ranks share its {} heads; use a mesh.tp that divides "
                        "model.num_key_value_heads, or leave k_proj and v_proj out of lora.target_modules",
                        module, tp_, c_.num_key_value_heads));
      product.adapters.push_back(
          add_adapter(b_.specs, product.weight + i, product.in_out, module, found->second, begin));
    }
  }

  int next() const { return static_cast<int>(b_.specs.size()); }

  Norm norm(const std::string& name) {
    Norm n{.weight = next(), .offset = c_.norm_offset};
    vector(name + ".weight", width_, norm_weight_);
    if (c_.layer_norm) {
      n.bias = next();
      vector(name + ".bias", width_, kZeros);
    }
    return n;
  }

  int bias(bool exists, const std::string& name) {
    if (!exists) return -1;
    vector(name, width_, kZeros);
    return next() - 1;
  }

  void matrix(const std::string& name, const std::vector<int64_t>& shape, const Initializer& init, int dim,
              const std::vector<Piece>& pieces, bool joined = false) {
    b_.specs.push_back({.name = prefix_ + name, .shape = shape, .init = init, .joined = joined});
    if (tp_ > 1) divide(b_.specs.back(), dim, pieces);
  }

  void vector(const std::string& name, int64_t size, const Initializer& init, const std::vector<Piece>& pieces = {},
              bool joined = false) {
    b_.specs.push_back({.name = prefix_ + name, .shape = {size}, .init = init, .decay = false, .joined = joined});
    if (tp_ > 1 && !pieces.empty()) divide(b_.specs.back(), 0, pieces);
  }

  const ModelConfig& c_;
  int64_t layer_, tp_, rank_, sharers_;
  int64_t width_ = c_.hidden_size, heads_ = c_.num_attention_heads * c_.head_dim,
          kv_ = c_.num_key_value_heads * c_.head_dim, mlp_ = c_.intermediate_size;
  Piece my_q_, my_kv_, my_mlp_;
  Initializer normal_{Kind::normal, c_.initializer_range}, residual_ = normal_;
  Initializer norm_weight_ = c_.norm_offset == 0 ? kOnes : kZeros;  // a norm that changes nothing
  std::string prefix_;
  BlockParameters b_;
};

}  // namespace

BlockParameters block_parameters(const ModelConfig& c, int64_t layer, const Parallel& parallel,
                                 const Adapters& adapters) {
  return BlockBuilder(c, layer, parallel).build(adapters);
}

bool BlockLayout::is_attention(int parameter) const {
  for (const Product* product : {&qkv, &out, &up, &down})
    for (const PartAdapter& adapter : product->adapters)
      for (const int index : parameters_of(adapter))
        if (parameter == index) return product == &qkv || product == &out;
  return parameter < norm2.weight;
}

}  // namespace trireme::model
