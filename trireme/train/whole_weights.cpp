#include "trireme/train/whole_weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/adapt/magnitudes.h"
#include "trireme/base/error.h"
#include "trireme/model/embedding.h"
#include "trireme/ops/products/products.h"
#include "trireme/train/state_parts.h"

namespace trireme::train {
namespace {

constexpr int64_t kElementsAtOnce = int64_t{4} << 20;  // of a parameter that is collected or merged

bool changes(const model::Adapters& adapters, const std::string& module) {
  return adapters.modules.contains(module) || adapters.whole.contains(module);
}

}  // namespace

model::ModelConfig merged_config(const model::ModelConfig& config, const model::Adapters& adapters) {
  model::ModelConfig merged = config;
  merged.quantized = base::BlockFormat::none;  // the values that codes stand for
  if (changes(adapters, "lm_head") ||
      changes(adapters, model::module_of(model::embedding_table_name(config.architecture))))
    merged.tie_word_embeddings = false;
  return merged;
}

std::vector<model::ParameterSpec> whole_parameters(const model::ModelConfig& merged,
                                                   const model::Precision& precision) {
  const model::Model whole = model::build_model(merged, precision, {}, {.trains = false});
  std::vector<model::ParameterSpec> specs;
  for (const model::ParameterGroup& group : whole.groups)
    specs.insert(specs.end(), group.parameters.begin(), group.parameters.end());
  return specs;
}

int64_t collecting_bytes(const std::vector<model::ParameterSpec>& whole, const model::Adapters& adapters) {
  int64_t largest = 0, factors = 0;
  for (const model::ParameterSpec& spec : whole) {
    largest = std::max(largest, spec.numel());
    const auto adapter = adapters.modules.find(model::module_of(spec.name));
    if (adapter == adapters.modules.end() || spec.shape.size() < 2) continue;
    factors = std::max(factors, adapter->second.rank * (spec.shape[0] + spec.shape[1]));
  }
  const int64_t buffers = (adapters.modules.empty() ? 2 : 3) * std::min(largest, kElementsAtOnce);
  return (buffers + factors) * static_cast<int64_t>(sizeof(double));
}

std::optional<std::string> unmergeable_bias(const model::ModelConfig& config, const model::Adapters& adapters) {
  for (const adapt::Module& module : adapt::modules_of(config)) {
    const auto adapter = adapters.modules.find(module.name);
    if (adapter != adapters.modules.end() && adapter->second.bias && module.bias.empty())
      return fmt::format("the bias of B (lora.bias) has no place in {}, which has no bias", module.name);
  }
  return std::nullopt;
}

void check_mergeable(const model::ModelConfig& config, const model::Adapters& adapters, std::string_view why) {
  if (const auto bias = unmergeable_bias(config, adapters))
    throw UsageError(fmt::format("{}, and {}; leave one of the two out", why, *bias));
}

WholeWeights::WholeWeights(engine::Engine& engine, const model::Model& model, comm::Communicator& world, On where)
    : model_(model), world_(world), modules_(adapt::modules_of(model.config)), on_every_rank_(where == On::every_rank) {
  const plan::StepRequest& request = engine.plan().request;
  is_whole_ = request.num_shards() == 1 && request.size(comm::Axis::tp) == 1 && request.size(comm::Axis::pp) == 1;
  model::Parallel parallel = request.parallel();
  tp_rank_ = parallel.tp_rank;
  for (parallel.tp_rank = 0; parallel.tp_rank < parallel.tp_size; ++parallel.tp_rank) {
    records_.emplace_back();
    const model::Model part = model::build_model(model.config, request.precision, parallel, {}, model.adapters);
    for (const auto& unit : part.units)
      for (const model::ParameterSpec& p : unit->parameters())
        if (p.is_quantized()) records_.back()[p.name] = p.quantized;
  }
  for (const engine::GroupState& g : engine.state()) {
    add_records(g);
    for_each_part(g, is_whole_ ? g.held : g.saved,
                  [&](const model::ParameterSpec& spec, int64_t begin, int64_t end, int64_t at) {
                    if (spec.counted) parts_[spec.name].push_back({begin, g.master.narrow(0, at, end - begin)});
                  });
  }
  for (const model::ParameterGroup& group : model.groups)
    for (const model::ParameterSpec& p : group.parameters) names_.insert(p.name);
}

void WholeWeights::collect(const model::ParameterSpec& p, const at::Tensor& to) {
  const bool is_head = p.name == model::head_table_name(model_.config.architecture);
  const std::string name = is_head && !names_.contains(p.name) ? modules_.front().weight : p.name;
  if (records_.front().contains(name))
    widen(name, to);
  else
    gather(parts_[name], p.numel(), to);
  const std::string module = model::module_of(p.name);
  const auto adapter = model_.adapters.modules.find(module);
  if (adapter == model_.adapters.modules.end()) return;
  const auto found = std::ranges::find(modules_, module, &adapt::Module::name);
  if (p.name == found->bias) {
    if (!adapter->second.bias) return;
    const at::Tensor bias = gather(module + model::kLoraBiasB, {p.numel()});
    if (to.defined()) at::Tensor(to).add_(bias.to(to.scalar_type()), adapter->second.scale);
  } else {
    merge_weight(*found, adapter->second, to);
  }
}

// Sums over ranks of which one at most has a number other than 0, so nothing is rounded.
void WholeWeights::gather(const std::vector<Part>& parts, int64_t size, const at::Tensor& to) {
  if (is_whole_) {
    for (const Part& part : parts)
      if (to.defined()) to.view({-1}).narrow(0, part.begin, part.values.numel()).copy_(part.values);
    return;
  }
  for (int64_t begin = 0; begin < size; begin += kElementsAtOnce) {
    const int64_t count = std::min(kElementsAtOnce, size - begin);
    const at::Tensor mine = at::zeros({count}, at::kDouble), sum = has_result() ? at::empty_like(mine) : at::Tensor();
    for (const Part& part : parts) {
      const int64_t first = std::max(begin, part.begin),
                    end = std::min(begin + count, part.begin + part.values.numel());
      if (first < end)
        mine.narrow(0, first - begin, end - first).copy_(part.values.narrow(0, first - part.begin, end - first));
    }
    (on_every_rank_ ? world_.all_reduce(sum, mine, {}) : world_.reduce(sum, mine, 0, {}))->wait();
    if (sum.defined()) to.view({-1}).narrow(0, begin, count).copy_(sum);
  }
}

at::Tensor WholeWeights::gather(const std::string& name, const std::vector<int64_t>& shape) {
  const at::Tensor whole = has_result() ? at::empty(shape, at::kDouble) : at::Tensor();
  gather(parts_[name], c10::multiply_integers(shape), whole);
  return whole;
}

// The bytes of this rank's records, of which another rank has none.
void WholeWeights::add_records(const engine::GroupState& g) {
  if (g.storage->quantized == base::BlockFormat::none) return;
  for (size_t i = 0; i < g.layout->tensors().size(); ++i) {
    const shard::FlatTensor& t = g.layout->tensors()[i];
    const shard::Range& range = is_whole_ ? g.held : g.saved;
    const int64_t begin = std::max(range.begin, t.offset), end = std::min(range.end, t.offset + t.numel);
    if (begin >= end) continue;
    parts_[(*g.parameters)[i].name].push_back(
        {begin - t.offset, g.master.narrow(0, begin - g.held.begin, end - begin)});
  }
}

// Of each tensor-parallel rank one record, with the rows or columns that it holds.
void WholeWeights::widen(const std::string& name, const at::Tensor& to) {
  for (int tp = 0; tp < std::ssize(records_); ++tp) {
    const ops::BlockPart& part = records_[static_cast<size_t>(tp)].at(name);
    const at::Tensor record = to.defined() ? at::empty({part.record_bytes()}, at::kByte) : at::Tensor();
    gather(tp == tp_rank_ ? parts_[name] : std::vector<Part>(), part.record_bytes(), record);
    if (!to.defined()) continue;
    ops::BlockRecords rows;
    rows.add(part, static_cast<const uint8_t*>(record.const_data_ptr()));
    int64_t row = 0;
    for (const ops::BlockPart::Span& span : part.row_spans) {
      const at::Tensor held = at::empty({span.size(), part.num_columns()}, to.scalar_type());
      ops::widen(held, rows.matrix(), row);
      at::Tensor(to)
          .view({part.rows, part.columns})
          .narrow(0, span.begin, span.size())
          .narrow(1, part.column_span.begin, part.num_columns())
          .copy_(held);
      row += span.size();
    }
  }
}

// As adapt/merge.h: W + scale B A, and DoRA scales each output of it.
void WholeWeights::merge_weight(const adapt::Module& m, const model::AdapterSpec& adapter, const at::Tensor& to) {
  const bool embedding = m.kind == adapt::Module::Kind::embedding;
  const at::Tensor a = gather(m.name + (embedding ? model::kLoraEmbeddingA : model::kLoraA), {adapter.rank, m.in}),
                   b = gather(m.name + (embedding ? model::kLoraEmbeddingB : model::kLoraB), {m.out, adapter.rank}),
                   magnitude = adapter.dora ? gather(m.name + model::kLoraMagnitude, {m.out}) : at::Tensor();
  if (!to.defined()) return;
  const adapt::LowRank change =
      m.transposed() ? adapt::LowRank{a.t(), b.t(), adapter.scale} : adapt::LowRank{b, a, adapter.scale};
  const int64_t rows = to.size(0), columns = to.size(1), step = std::max<int64_t>(1, kElementsAtOnce / columns);
  const auto merged = [&](int64_t row, int64_t count) {
    at::Tensor piece = to.narrow(0, row, count).to(at::kDouble, false, true);
    change.add_to(piece, row, count, 0, columns);
    return piece;
  };
  at::Tensor factors;  // of outputs
  if (magnitude.defined()) {
    factors = at::zeros({m.out}, at::kDouble);
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t count = std::min(step, rows - row);
      const at::Tensor sums = merged(row, count).square_().sum(m.transposed() ? 0 : 1);
      m.transposed() ? factors.add_(sums) : factors.narrow(0, row, count).copy_(sums);
    }
    factors.masked_fill_(factors.eq(0), 1);  // as output_norms()
    factors = magnitude / factors.sqrt_();
  }
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    at::Tensor piece = merged(row, count);
    if (factors.defined()) piece.mul_(m.transposed() ? factors : factors.narrow(0, row, count).unsqueeze(1));
    at::Tensor(to).narrow(0, row, count).copy_(piece);
  }
}

}  // namespace trireme::train
