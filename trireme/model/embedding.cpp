#include "trireme/model/embedding.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/model/adapter_parameters.h"
#include "trireme/model/layers.h"
#include "trireme/model/quantized.h"
#include "trireme/model/tensor_names.h"
#include "trireme/model/tensor_parallel.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/products/products.h"

namespace trireme::model {
namespace {
enum Parameter { kTable };

/// Kept for the backward of the norm.
enum Saved { kSum, kRstd, kMean };

struct EmbeddingWork {
  enum Slot {
    local_ids,     ///< tensor parallel
    position_ids,  ///< of learned positions, context parallel
    order,         ///< backward
    whole_rows,    ///< sequence parallel
    inner,         ///< of an adapter: [T, rank] of A
    d_inner,       ///< backward of an adapter
    wide,          ///< rows of its product (ops::add_product)
    b_sum,         ///< tensor parallel: this rank's part of B's gradient
    normed,        ///< the norm's output again, and its gradient
    norm_parts,    ///< sequence parallel: gradients of the norm from this rank's rows
    dropout_keys,
    table_rows,    ///< of a packed table
    row_numbers,
  };
};

constexpr int64_t kProductRows = 64;  // of an adapter's product at a time

// The rows of a text's positions, from position 0 on.
at::Tensor used_positions(const at::Tensor& table, const ModelConfig& c) {
  return c.first_position == 0 ? table : table.narrow(0, c.first_position, c.max_position_embeddings);
}
}  // namespace

VocabularyPart vocabulary_part(const ModelConfig& config, const Parallel& parallel, bool on_gpu) {
  const auto divided_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t multiple = on_gpu ? 8 : 1;
  const int64_t size = divided_up(divided_up(config.vocab_size, parallel.tp_size), multiple) * multiple;
  return {size * parallel.tp_rank, size, parallel.tp_size == 1 && size == config.vocab_size};
}

ParameterSpec vocabulary_parameter(const std::string& name, const ModelConfig& config, const VocabularyPart& part) {
  ParameterSpec p{.name = name,
                  .shape = {config.vocab_size, config.hidden_size},
                  .init = {Initializer::Kind::normal, config.initializer_range}};
  if (part.is_whole) return p;
  p.full_shape = p.shape;
  p.shape[0] = part.size;
  p.split_dim = 0;
  p.pieces = {{part.first, part.first + part.size}};
  return p;
}

void pack_for_head(ParameterSpec& table, const ModelConfig& config) {
  quantize(table, config.quantized_head, "quantize_head");
  table.quantized_as_read = table.is_quantized();
  pack(table, /*in_out=*/false, *config.packed);
}

std::string head_table_name(Architecture architecture) {
  return std::string(tensor_names(architecture).head) + ".weight";
}

std::string embedding_table_name(Architecture architecture) {
  return std::string(tensor_names(architecture).embedding) + ".weight";
}

EmbeddingUnit::EmbeddingUnit(const ModelConfig& c, const Parallel& parallel, const VocabularyPart& part,
                             const Adapters& adapters)
    : config_(c),
      parallel_(parallel),
      part_(part),
      dropout_{.p = c.dropout.embedding, .module = dropout_module_key("embedding.output")},
      noise_{.p = c.dropout.neftune, .module = dropout_module_key("embedding.noise")} {
  const std::string table = embedding_table_name(c.architecture), module = table.substr(0, table.rfind('.'));
  parameters_.push_back(vocabulary_parameter(table, c, part));
  if (c.packed && c.tie_word_embeddings) pack_for_head(parameters_.back(), c);
  const TensorNames& names = tensor_names(c.architecture);
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, Initializer::Kind kind, bool decays) {
    parameters_.push_back({.name = name,
                           .shape = std::move(shape),
                           .init = {kind, kind == Initializer::Kind::normal ? c.initializer_range : 0},
                           .decay = decays,
                           .counted = parallel.tp_rank == 0});
    return static_cast<int>(parameters_.size()) - 1;
  };
  using Kind = Initializer::Kind;
  if (c.learned_positions)
    positions_ = add(std::string(names.positions) + ".weight",
                     {c.first_position + c.max_position_embeddings, c.hidden_size}, Kind::normal, true);
  if (c.token_types > 0)
    types_ = add(std::string(names.token_types) + ".weight", {c.token_types, c.hidden_size}, Kind::normal, true);
  if (c.embedding_norm) {
    const std::string norm = names.embedding_norm;
    norm_ = {.weight = add(norm + ".weight", {c.hidden_size}, Kind::ones, false), .bias = -1};
    norm_.bias = add(norm + ".bias", {c.hidden_size}, Kind::zeros, false);
  }
  const auto adapter = adapters.modules.find(module);
  if (adapter != adapters.modules.end()) add_adapter(adapter->second, module);
}

// PEFT begins with A zero and B normal, whatever lora.init says.
void EmbeddingUnit::add_adapter(const AdapterSpec& spec, const std::string& module) {
  if (spec.dora)
    throw UsageError(
        fmt::format("DoRA (lora.dora, use_dora) does not train magnitudes of an embedding; leave {} out of "
                    "lora.target_modules, or set lora.dora false",
                    module));
  const Initializer normal{Initializer::Kind::normal, 1}, zeros{Initializer::Kind::zeros, 0};
  const ParameterSpec& table = parameters_[kTable];
  const std::vector<int64_t> whole = table.whole_shape();
  adapter_ = static_cast<int>(parameters_.size());
  rank_ = spec.rank;
  adapter_scale_ = spec.scale;
  ParameterSpec a{.name = module + kLoraEmbeddingA,
                  .shape = {spec.rank, whole[0]},
                  .init = spec.init == AdapterInit::random ? normal : zeros};
  if (table.split_dim == 0) divide(a, 1, table.pieces);
  parameters_.push_back(std::move(a));
  parameters_.push_back({.name = module + kLoraEmbeddingB,
                         .shape = {whole[1], spec.rank},
                         .init = normal,
                         .counted = parallel_.tp_rank == 0});
}

// Gemma's factor is rounded like a weight, as when the model was trained.
double EmbeddingUnit::scale(at::ScalarType compute) const {
  if (!config_.scaled_embedding) return config_.embedding_multiplier;
  return at::scalar_tensor(std::sqrt(double(config_.hidden_size)), compute).item<double>();
}

UnitValues EmbeddingUnit::values(const BatchShape& shape, const Precision& p) const {
  const LocalRows local = local_rows(parallel_, shape);
  UnitValues v;
  v.output = {"output", {local.rows, config_.hidden_size}, p.compute};
  for (Slots* work : {&v.forward_work, &v.backward_work}) {
    if (parallel_.tp_size > 1) (*work)[EmbeddingWork::local_ids] = {"local ids", {local.tokens}, at::kLong};
    if (own_positions()) (*work)[EmbeddingWork::position_ids] = {"position ids", {local.tokens}, at::kLong};
    if (sequence_parallel())
      (*work)[EmbeddingWork::whole_rows] = {"whole rows", {local.tokens, config_.hidden_size}, p.compute};
    if (dropout_.p > 0 || noise_.p > 0)
      (*work)[EmbeddingWork::dropout_keys] = {"dropout keys", {local.tokens}, at::kInt};
  }
  if (parameters_[kTable].packed) {
    v.forward_work[EmbeddingWork::table_rows] = {"rows of the table", {local.tokens, config_.hidden_size}, p.compute};
    v.forward_work[EmbeddingWork::row_numbers] = {"their numbers", {local.tokens}, at::kLong};
  }
  if (has_adapter()) {
    for (Slots* work : {&v.forward_work, &v.backward_work})
      (*work)[EmbeddingWork::inner] = {"adapter's inner values", {local.tokens, rank_}, p.compute};
    if (ops::is_narrow(p.compute))
      v.forward_work[EmbeddingWork::wide] = {
          "adapter's product", {std::min(local.tokens, kProductRows) * config_.hidden_size}, p.state};
    v.backward_work[EmbeddingWork::d_inner] = {"gradients of inner values", {local.tokens, rank_}, p.compute};
    if (parallel_.tp_size > 1)
      v.backward_work[EmbeddingWork::b_sum] = {"adapter's gradient", {config_.hidden_size, rank_}, p.state};
  }
  v.backward_work[EmbeddingWork::order] = {"order", {local.tokens}, at::kLong};
  if (!norm_.present()) return v;
  v.saved[kSum] = {"sum", {local.rows, config_.hidden_size}, p.compute};
  v.saved[kRstd] = {"rstd", {local.rows}, p.state};
  v.saved[kMean] = {"mean", {local.rows}, p.state};
  for (Slots* work : {&v.forward_work, &v.backward_work})
    (*work)[EmbeddingWork::normed] = {"normed", {local.rows, config_.hidden_size}, p.compute};
  if (sequence_parallel())
    v.backward_work[EmbeddingWork::norm_parts] = {"norm gradients", {2, config_.hidden_size}, p.state};
  return v;
}

// Tensor parallel: rows in this rank's part of the table; -1 for ids of other ranks.
void EmbeddingUnit::to_local(const at::Tensor& ids, const at::Tensor& tokens) const {
  if (tokens.is_cuda()) {
    at::Tensor(ids).copy_(tokens).sub_(part_.first);
    at::Tensor(ids).masked_fill_(ids.ge(part_.size).logical_or_(ids.lt(0)), -1);
    return;
  }
  ops::check_tokens("embedding", tokens, config_.vocab_size);
  const int64_t* token = tokens.data_ptr<int64_t>();
  auto* id = at::Tensor(ids).mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    const int64_t local = token[i] - part_.first;
    id[i] = local >= 0 && local < part_.size ? local : -1;
  }
}

EmbeddingUnit::Rows EmbeddingUnit::rows(const UnitTensors& t) const {
  Rows rows{t.tokens, {}};
  if (parallel_.tp_size > 1) {
    rows.ids = t.work[EmbeddingWork::local_ids];
    to_local(rows.ids, t.tokens);
  }
  if (own_positions()) rows.positions = t.work[EmbeddingWork::position_ids];
  if (t.position_ids.defined()) {
    rows.positions = t.position_ids;
  } else if (own_positions()) {
    std::vector<int64_t> positions = context_positions(parallel_, t.shape.sequence);
    const auto count = static_cast<int64_t>(positions.size());
    rows.positions.view({t.shape.micro_batch, count}).copy_(at::from_blob(positions.data(), {count}, at::kLong));
  }
  return rows;
}

// Tokens -> the sum of their rows, positions and type.
void EmbeddingUnit::sum(UnitTensors& t, const at::Tensor& to) const {
  const TensorParallel tp(parallel_, t.ranks);
  const Rows r = rows(t);
  const bool is_first = parallel_.tp_rank == 0;
  const at::Tensor partial = tp.sequence() ? t.work[EmbeddingWork::whole_rows] : to;
  at::Tensor ids = r.ids, table = t.parameters[kTable];
  if (parameters_[kTable].packed) {
    table = t.work[EmbeddingWork::table_rows];
    unpack_columns(*parameters_[kTable].packed, t.parameters[kTable], ids, table);
    ids = t.work[EmbeddingWork::row_numbers];
    at::arange_out(ids, ids.numel());
  }
  ops::embedding_forward(partial, ids, table,
                         positions_ >= 0 && is_first ? used_positions(t.parameters[positions_], config_) : at::Tensor(),
                         t.shape.sequence / parallel_.cp_size, r.positions, scale(table.scalar_type()));
  if (types_ >= 0 && is_first) at::Tensor(partial).add_(t.parameters[types_][0]);
  if (has_adapter()) forward_adapter(t, partial, r.ids);
  tp.reduce(partial, to);
}

NormStatistics EmbeddingUnit::statistics(const UnitTensors& t) const { return {t.saved[kMean], t.saved[kRstd]}; }

void EmbeddingUnit::forward(UnitTensors& t) const {
  if (norm_.present()) {
    sum(t, t.saved[kSum]);
    add_noise(t, t.saved[kSum]);
    norm_forward(norm_, t.output, statistics(t), t.saved[kSum], t.parameters, config_.norm_eps);
  } else {
    sum(t, t.output);
    add_noise(t, t.output);
  }
  if (dropout_.p > 0) drop(dropout_, t.output, t.output, t, parallel_, t.work[EmbeddingWork::dropout_keys]);
}

// Source    Jain et al., NEFTune (2023); L is the length of a row, and the noise is added before Granite's factor, as
// in transformers
void EmbeddingUnit::add_noise(const UnitTensors& t, const at::Tensor& y) const {
  if (noise_.p == 0 || !t.random.active) return;
  const at::Tensor& keys = t.work[EmbeddingWork::dropout_keys];
  dropout_keys(keys, t.random, noise_.module, t.shape, parallel_);
  const int64_t rows = y.size(0), first = rows == keys.size(0) ? 0 : rows * parallel_.tp_rank;
  const auto values = static_cast<double>(t.shape.sequence * config_.hidden_size);
  ops::add_uniform_noise(y, keys.narrow(0, first, rows), noise_.p / std::sqrt(values) * config_.embedding_multiplier);
}

void EmbeddingUnit::recompute(UnitTensors& t, const std::vector<int>& /*which*/) const {
  if (!norm_.present()) return;
  sum(t, t.saved[kSum]);
  add_noise(t, t.saved[kSum]);
  norm_forward(norm_, t.work[EmbeddingWork::normed], statistics(t), t.saved[kSum], t.parameters, config_.norm_eps);
}

// y += scale * B A[:, ids]; ids of other ranks add nothing.
void EmbeddingUnit::forward_adapter(UnitTensors& t, const at::Tensor& y, const at::Tensor& ids) const {
  const at::Tensor &inner = t.work[EmbeddingWork::inner], &a = t.parameters[adapter_], &b = t.parameters[adapter_ + 1];
  ops::embedding_columns_forward(inner, ids, a, adapter_scale_ * scale(a.scalar_type()));
  const bool has_wide = static_cast<int>(t.work.size()) > EmbeddingWork::wide;
  ops::add_product(y, inner, b.t(), has_wide ? t.work[EmbeddingWork::wide] : at::Tensor());
}

// Every rank has all rows of dy, and A's columns of its own ids: a part of the gradient of B, and all of that of A.
void EmbeddingUnit::backward_adapter(UnitTensors& t, const at::Tensor& dy, const at::Tensor& ids) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor &inner = t.work[EmbeddingWork::inner], &d_inner = t.work[EmbeddingWork::d_inner],
                   &a = t.parameters[adapter_], &b = t.parameters[adapter_ + 1];
  const double factor = adapter_scale_ * scale(a.scalar_type());
  const auto of_a = static_cast<size_t>(adapter_), of_b = of_a + 1;
  ops::embedding_columns_forward(inner, ids, a, factor);
  const ops::Gradient db = tp.alone() ? t.gradient(of_b) : ops::Gradient(t.work[EmbeddingWork::b_sum]);
  ops::multiply(db.to, dy.t(), inner, db.accumulate);
  if (!tp.alone()) {
    tp.sum(db.to);
    ops::write_gradient(t.gradient(of_b), db.to);
  }
  ops::multiply(d_inner, dy, b);
  ops::embedding_columns_backward(t.gradient(of_a), d_inner, ids, t.work[EmbeddingWork::order], factor);
}

// Under sequence parallelism each rank has the part from its rows.
void EmbeddingUnit::backward_norm(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const NormGradients direct{t.gradient(norm_.weight), t.gradient(norm_.bias)};
  const at::Tensor& dy = t.work[EmbeddingWork::normed];
  const at::Tensor parts = tp.sequence() ? t.work[EmbeddingWork::norm_parts] : at::Tensor();
  at::Tensor(dy).copy_(t.d_boundary);
  norm_backward(norm_, t.d_boundary, tp.sequence() ? NormGradients{parts[0], parts[1]} : direct, dy, dy, t.saved[kSum],
                t.parameters, statistics(t), at::Tensor());
  if (!tp.sequence()) return;
  tp.sum(parts);
  ops::write_gradient(direct.weight, parts[0]);
  ops::write_gradient(direct.bias, parts[1]);
}

// The gradient of the first type: all tokens have it. The other rows get none.
void EmbeddingUnit::write_type(const UnitTensors& t, const at::Tensor& dy) const {
  const ops::Gradient all = t.gradient(static_cast<size_t>(types_));
  if (!all.defined()) return;
  ops::bias_backward({all.to[0], all.accumulate}, dy);
  if (!all.accumulate && config_.token_types > 1) all.to.narrow(0, 1, config_.token_types - 1).zero_();
}

void EmbeddingUnit::backward(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  if (dropout_.p > 0) drop(dropout_, t.d_boundary, t.d_boundary, t, parallel_, t.work[EmbeddingWork::dropout_keys]);
  if (norm_.present()) backward_norm(t);
  const Rows r = rows(t);
  const at::Tensor& order = t.work[EmbeddingWork::order];
  const at::Tensor dy = tp.gather(tp.sequence() ? t.work[EmbeddingWork::whole_rows] : at::Tensor(), t.d_boundary);
  // Every rank has all rows of dy: the gradient of the positions is the same on all of them.
  ops::Gradient positions = positions_ >= 0 ? t.gradient(static_cast<size_t>(positions_)) : ops::Gradient();
  if (positions.defined() && config_.first_position > 0) {
    if (!positions.accumulate) positions.to.narrow(0, 0, config_.first_position).zero_();
    positions.to = used_positions(positions.to, config_);
  }
  ops::embedding_backward(t.gradient(kTable), positions, dy, r.ids, order, t.shape.sequence / parallel_.cp_size,
                          r.positions, scale(dy.scalar_type()));
  if (types_ >= 0) write_type(t, dy);
  if (has_adapter()) backward_adapter(t, dy, r.ids);
}

UnitTraffic EmbeddingUnit::traffic(const BatchShape& shape, const Precision& p) const {
  const TensorTraffic tp(parallel_);
  const int64_t boundary = local_rows(parallel_, shape).tokens * config_.hidden_size;
  UnitTraffic u;
  tp.reduce(u.forward, p.compute, boundary);
  if (norm_.present()) u.recompute = u.forward;
  if (norm_.present() && sequence_parallel()) tp.sum(u.backward, p.state, 2 * config_.hidden_size);
  tp.gather(u.backward, p.compute, boundary);
  if (has_adapter()) tp.sum(u.backward, p.state, config_.hidden_size * rank_);
  return u;
}

}  // namespace trireme::model
