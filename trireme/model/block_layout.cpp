#include "trireme/model/block_layout.h"

#include <fmt/format.h>

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/model/adapter_parameters.h"
#include "trireme/model/quantized.h"
#include "trireme/model/tensor_names.h"

namespace trireme::model {
namespace {

// Part `number` of `size` elements in equal parts.
Piece part(int64_t size, int64_t parts, int64_t number) { return {size / parts * number, size / parts * (number + 1)}; }
Piece behind(Piece piece, int64_t offset) { return {piece.begin + offset, piece.end + offset}; }

// `why`, for the message: why only divisors are allowed.
void check_axis(const char* axis, int64_t size, const char* key, int64_t value, const char* why = "") {
  if (value % size == 0) return;
  std::vector<std::string> legal;
  for (int64_t n = 1; n <= value; ++n)
    if (value % n == 0) legal.push_back(std::to_string(n));
  throw UsageError(fmt::format("{}={} does not divide model.{}={}; use {} in {{{}}}{}", axis, size, key, value, axis,
                               base::join(legal, ", "), why));
}

}  // namespace

void check_divisible(const ModelConfig& c, const Parallel& p) {
  const int64_t tp = p.tp_size, kv = c.num_key_value_heads;
  check_axis("mesh.tp", tp, "num_attention_heads", c.num_attention_heads);
  check_axis("mesh.tp", tp, "intermediate_size", c.intermediate_size);
  // Ranks divide the key/value heads, or several neighbours hold each. They cannot be copied if they are in one matrix
  // with the queries, or if a norm over all of them would count a copy twice.
  const bool in_one_matrix = tensor_names(c.architecture).block.qkv != nullptr;
  if (in_one_matrix || c.wide_query_key_norm)
    check_axis("mesh.tp", tp, "num_key_value_heads", kv,
               in_one_matrix ? ", because ranks cannot share a key/value head that is in one matrix with the queries"
                             : ", because ranks cannot share a key/value head: the norm over all heads would count it "
                               "twice");
  else if (kv % tp != 0 && tp % kv != 0)
    throw UsageError(
        fmt::format("mesh.tp={} neither divides model.num_key_value_heads={} nor is a multiple of it; use a mesh.tp of "
                    "a divisor or a multiple of the key/value heads",
                    tp, kv));
  if (p.cp_size == 1 || p.context == Context::ring) return;
  const BlockWidths w = block_widths(c, p);
  if (w.heads % p.cp_size != 0)
    throw UsageError(fmt::format(
        "ulysses attention divides the {} of a rank (model.num_attention_heads={} / mesh.tp={}) over mesh.cp={}, and "
        "they do not divide; use a mesh.cp that divides them, or ring attention where documents are not kept apart",
        base::plural(w.heads, "query head"), c.num_attention_heads, tp, p.cp_size));
  if (w.kv_heads % p.cp_size != 0 && p.cp_size % w.kv_heads != 0)
    throw UsageError(fmt::format(
        "ulysses attention: mesh.cp={} neither divides the {} of a rank (model.num_key_value_heads={}, mesh.tp={}) nor "
        "is a multiple of them; use a mesh.cp that does, or ring attention where documents are not kept apart",
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
const std::string kWeight = ".weight", kBias = ".bias";

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
    attention();
    mlp();
    BlockLayout& l = b_.layout;
    const bool packs = c_.packed.has_value();
    for (Product* product : {&l.qkv, &l.out, &l.up, &l.down}) {
      for (int i = 0; i < product->parts && c_.quantized != base::BlockFormat::none && !packs; ++i)
        product->quantized.push_back(b_.specs[static_cast<size_t>(product->weight + i)].quantized);
      for (int i = 0; i < product->parts && packs; ++i) {
        ParameterSpec& p = b_.specs[static_cast<size_t>(product->weight + i)];
        pack(p, n_.in_out, *c_.packed);
        product->packed.push_back(*p.packed);
      }
      adapt(*product, adapters);
    }
    for (ParameterSpec& p : b_.specs)
      if (p.split_dim < 0) p.counted = rank_ == 0;
    return std::move(b_);
  }

 private:
  enum class Divided { outputs, inputs };

  void attention() {
    BlockLayout& l = b_.layout;
    if (c_.pre_norms) l.norm1 = norm(n_.norm1);
    if (n_.qkv != nullptr) {
      l.qkv = {.weight = next(), .in_out = n_.in_out};
      const std::string name = n_.qkv;
      matrix(name + ".weight", heads_ + 2 * kv_, width_, normal_, Divided::outputs, qkv_pieces());
      if (c_.attention_bias) {
        l.qkv.bias = next();
        vector(name + ".bias", heads_ + 2 * kv_, kZeros, qkv_pieces());
      }
    } else {
      l.qkv = {.weight = next(), .parts = 3};
      matrix(n_.q + kWeight, heads_, width_, normal_, Divided::outputs, {my_q_});
      matrix(n_.k + kWeight, kv_, width_, normal_, Divided::outputs, {my_kv_}, true);
      matrix(n_.v + kWeight, kv_, width_, normal_, Divided::outputs, {my_kv_}, true);
      if (c_.attention_bias) {
        l.qkv.bias = next();
        vector(n_.q + kBias, heads_, kZeros, {my_q_});
        vector(n_.k + kBias, kv_, kZeros, {my_kv_}, true);
        vector(n_.v + kBias, kv_, kZeros, {my_kv_}, true);
      }
      for (ParameterSpec& p : b_.specs)
        if (p.split_dim == 0 && p.pieces.front() == my_kv_ && p.joined) p.counted = rank_ % sharers_ == 0;
    }
    if (c_.query_key_norm || c_.wide_query_key_norm) {
      const bool wide = c_.wide_query_key_norm;
      l.query_norm = next();
      vector(n_.query_norm + kWeight, wide ? heads_ : c_.head_dim, norm_weight_,
             wide ? std::vector{my_q_} : std::vector<Piece>());
      l.key_norm = next();
      vector(n_.key_norm + kWeight, wide ? kv_ : c_.head_dim, norm_weight_,
             wide ? std::vector{my_kv_} : std::vector<Piece>());
    }
    l.out = {.weight = next(), .in_out = n_.in_out};
    matrix(n_.out + kWeight, width_, heads_, residual_, Divided::inputs, {my_q_});
    l.out.bias = bias(c_.attention_out_bias, n_.out + kBias);
    if (c_.post_norms) l.post1 = norm(n_.post1);
    if (c_.sum_norms) l.sum1 = norm(n_.sum1);
  }

  void mlp() {
    BlockLayout& l = b_.layout;
    if (c_.pre_norms) l.norm2 = norm(n_.norm2);
    const std::vector<Piece> both = {my_mlp_, behind(my_mlp_, mlp_)};
    l.up = {.weight = next(), .in_out = n_.in_out};
    if (n_.gate_up != nullptr) {
      matrix(n_.gate_up + kWeight, 2 * mlp_, width_, normal_, Divided::outputs, both);
    } else if (n_.gate != nullptr) {
      l.up.parts = 2;
      matrix(n_.gate + kWeight, mlp_, width_, normal_, Divided::outputs, {my_mlp_});
      matrix(n_.up + kWeight, mlp_, width_, normal_, Divided::outputs, {my_mlp_}, true);
    } else {
      matrix(n_.up + kWeight, mlp_, width_, normal_, Divided::outputs, {my_mlp_});
    }
    if (c_.mlp_bias) {
      l.up.bias = next();
      if (n_.gate_up != nullptr) vector(n_.gate_up + kBias, 2 * mlp_, kZeros, both);
      if (l.up.parts == 2) vector(n_.gate + kBias, mlp_, kZeros, {my_mlp_});
      if (n_.gate_up == nullptr) vector(n_.up + kBias, mlp_, kZeros, {my_mlp_}, l.up.parts == 2);
    }
    l.down = {.weight = next(), .in_out = n_.in_out};
    matrix(n_.down + kWeight, width_, mlp_, residual_, Divided::inputs, {my_mlp_});
    l.down.bias = bias(c_.mlp_bias, n_.down + kBias);
    if (c_.post_norms) l.post2 = norm(n_.post2);
    if (c_.sum_norms) l.sum2 = norm(n_.sum2);
  }

  // The rows of this rank's q, then k, then v in the matrix that holds all three. If they lie head by head in it, every
  // head has pieces of its own, on one rank too.
  std::vector<Piece> qkv_pieces() const {
    if (!n_.by_head) return {my_q_, behind(my_kv_, heads_), behind(my_kv_, heads_ + kv_)};
    std::vector<Piece> pieces;
    for (int64_t part = 0; part < 3; ++part)
      for (int64_t row = my_q_.begin; row < my_q_.end; row += c_.head_dim) {
        const int64_t begin = 3 * row + part * c_.head_dim;
        pieces.push_back({begin, begin + c_.head_dim});
      }
    return pieces;
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

  void matrix(const std::string& name, int64_t outputs, int64_t inputs, const Initializer& init, Divided divided,
              const std::vector<Piece>& pieces, bool joined = false) {
    const std::vector<int64_t> shape = n_.in_out ? std::vector{inputs, outputs} : std::vector{outputs, inputs};
    b_.specs.push_back({.name = prefix_ + name, .shape = shape, .init = init, .joined = joined});
    if (divides(pieces)) divide(b_.specs.back(), (divided == Divided::outputs) == n_.in_out ? 1 : 0, pieces);
    quantize(b_.specs.back(), c_.quantized, c_.quantized_by);
  }

  void vector(const std::string& name, int64_t size, const Initializer& init, const std::vector<Piece>& pieces = {},
              bool joined = false) {
    b_.specs.push_back({.name = prefix_ + name, .shape = {size}, .init = init, .decay = false, .joined = joined});
    if (divides(pieces)) divide(b_.specs.back(), 0, pieces);
  }

  bool divides(const std::vector<Piece>& pieces) const {
    return !pieces.empty() && (tp_ > 1 || (n_.by_head && pieces.size() > 2));
  }

  const ModelConfig& c_;
  const BlockNames& n_ = tensor_names(c_.architecture).block;
  int64_t layer_, tp_, rank_, sharers_;
  int64_t width_ = c_.hidden_size, heads_ = c_.num_attention_heads * c_.head_dim,
          kv_ = c_.num_key_value_heads * c_.head_dim, mlp_ = c_.intermediate_size;
  Piece my_q_, my_kv_, my_mlp_;
  Initializer normal_{Kind::normal, c_.initializer_range}, residual_ = normal_;
  Initializer norm_weight_ = c_.norm_offset == 0 ? kOnes : kZeros;  // a norm that changes nothing
  std::string prefix_ = n_.prefix + std::to_string(layer_) + ".";
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
  return parameter < (norm2.present() ? norm2.weight : up.weight);
}

}  // namespace trireme::model
