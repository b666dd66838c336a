#include "matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <random>

#include "trireme/base/error.h"
#include "trireme/model/tensor_names.h"

namespace trireme::engine {
namespace {

constexpr const char* kSchedules[] = {"gpipe", "1f1b", "interleaved_1f1b", "breadth_first", "zb_h1", "zb_v"};

int data_ranks(const std::string& strategy) { return strategy.starts_with("hybrid") ? 4 : 2; }

// The values of a cell, in one order: what pairs are made of.
std::vector<std::string> properties(const MatrixCell& c) {
  return {c.strategy,
          std::to_string(c.tp),
          std::to_string(c.pp),
          std::to_string(c.cp),
          c.sequence_parallel ? "sp" : "",
          c.ulysses ? "ulysses" : "",
          c.schedule,
          c.recompute,
          c.accumulation,
          c.tied ? "tied" : "",
          std::to_string(c.kv_heads),
          c.gpt2 ? "gpt2" : "llama"};
}

}  // namespace

std::string MatrixCell::name() const {
  return fmt::format("{}{}{} tp{}{} pp{}{} cp{}{} recompute {} accumulation {} kv{}{}{}{}{}", gpt2 ? "gpt2 " : "",
                     strategy, relative.empty() ? "" : " " + relative, tp, sequence_parallel ? "+sp" : "", pp,
                     schedule.empty() ? "" : " " + schedule, cp, ulysses ? " ulysses" : "", recompute, accumulation,
                     kv_heads, tied ? " tied" : "", adapted ? " adapters" : "", dropping ? " dropout" : "",
                     steps_in_backward ? " steps in backward" : "");
}

std::vector<MatrixCell> all_cells(int max_ranks) {
  std::vector<MatrixCell> cells;
  for (const char* strategy : {"ddp", "zero1", "zero2", "zero3", "hybrid", "hybrid_zero2"})
    for (int tp : {1, 2, 4})
      for (int pp : {1, 2, 4})
        for (int cp : {1, 2})
          for (bool sp : {false, true})
            for (bool ulysses : {false, true})
              for (const char* schedule : kSchedules)
                for (const char* recompute : {"none", "full", "selective"})
                  for (const char* accumulation : {"1", "3", "leftover", "local"})
                    for (bool tied : {false, true})
                      for (int kv : {1, 2, 4})
                        for (bool gpt2 : {false, true}) {
                          if ((sp && tp == 1) || (ulysses && cp == 1) || (gpt2 && kv != 4)) continue;
                          if (pp == 1 && schedule != std::string("gpipe")) continue;
                          // Data ranks are left out where the others fill the machine: then the strategy has one.
                          if (tp * pp * cp > max_ranks) continue;
                          cells.push_back({strategy, tp, pp, cp, sp, ulysses, pp > 1 ? schedule : "", recompute,
                                           accumulation, tied, kv, gpt2});
                        }
  return cells;
}

std::vector<MatrixCell> pairwise_cells(const std::vector<MatrixCell>& all, uint64_t seed) {
  std::vector<size_t> order(all.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  constexpr size_t kMost = 128;  // values of all properties
  std::map<std::pair<size_t, std::string>, size_t> numbers;
  std::vector<bool> seen(kMost * kMost);
  std::vector<MatrixCell> chosen;
  for (size_t index : order) {
    const std::vector<std::string> p = properties(all[index]);
    std::vector<size_t> values;
    for (size_t i = 0; i < p.size(); ++i)
      values.push_back(numbers.try_emplace({i, p[i]}, numbers.size()).first->second);
    if (numbers.size() > kMost) throw Error("the properties of cells have more values than there is room for");
    bool news = false;
    for (size_t a = 0; a < values.size(); ++a)
      for (size_t b = a + 1; b < values.size(); ++b) {
        const size_t pair = values[a] * kMost + values[b];
        news |= !seen[pair];
        seen[pair] = true;
      }
    if (news) chosen.push_back(all[index]);
  }
  return chosen;
}

namespace {

// On column and row products, on the head and the embedding; not on key/value heads, which ranks may share.
model::Adapters some_adapters(const model::ModelConfig& config) {
  const model::AdapterSpec spec{
      .rank = 3, .scale = 2, .dropout = 0.25, .init = model::AdapterInit::random, .rate_of_b = 2};
  const model::TensorNames& names = model::tensor_names(config.architecture);
  const model::BlockNames& b = names.block;
  model::Adapters adapters{.modules = {{"lm_head", spec}, {names.embedding, spec}}};
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    for (const char* module : {b.qkv != nullptr ? b.qkv : b.q, b.out,
                               b.gate_up != nullptr ? b.gate_up
                               : b.gate != nullptr  ? b.gate
                                                    : b.up,
                               b.down})
      adapters.modules[b.prefix + std::to_string(layer) + "." + module] = spec;
  return adapters;
}

}  // namespace

Job job_of(const MatrixCell& c, const model::Precision& precision) {
  Job job{.model = small_model(c.gpt2 ? "gpt2" : c.relative), .precision = precision};
  job.model.num_attention_heads = 4;
  job.model.head_dim = 8;
  job.model.num_key_value_heads = c.kv_heads;
  job.model.hidden_size = 32;
  job.model.intermediate_size = 48;
  job.model.num_hidden_layers = 6;  // and embedding and head: eight units, for pipelines of up to eight stages
  if (c.relative == "smollm3") {
    model::set_num_hidden_layers(job.model, 6);
    job.model.windowed = {true, false, true, true, false, true};
  }
  if (c.relative == "gpt_neox" || job.model.bidirectional) job.model.num_key_value_heads = 4;
  if (job.model.is_classifier()) job.documents.attention = true;
  if (c.relative == "gemma3") job.model.windowed = {true, false, true, true, false, true};
  job.model.tie_word_embeddings = c.tied;
  if (c.adapted) job.adapters = some_adapters(job.model);
  job.steps_in_backward = c.steps_in_backward;
  if (c.steps_in_backward) job.max_norm.reset();
  if (c.dropping) job.model.dropout = {.attention = 0.2, .residual = 0.15, .embedding = 0.1};
  job.shape = {2, 16};
  // As many data ranks as eight ranks leave room for.
  const int room = 8 / (c.tp * c.pp * c.cp), data = std::min(data_ranks(c.strategy), room);
  const bool hybrid = c.strategy.starts_with("hybrid") && data == 4;
  job.mesh = {.pp = c.pp, .replicate = hybrid ? 2 : 1, .shard = hybrid ? 2 : data, .cp = c.cp, .tp = c.tp};
  job.strategy = c.strategy == "ddp"                                     ? plan::Strategy::no_shard
                 : c.strategy == "zero1"                                 ? plan::Strategy::zero1
                 : c.strategy == "zero2" || c.strategy == "hybrid_zero2" ? plan::Strategy::shard_grad_op
                                                                         : plan::Strategy::full_shard;
  job.sequence_parallel = c.sequence_parallel;
  job.context = c.ulysses ? model::Context::ulysses : model::Context::ring;
  job.pipeline.schedule = c.schedule.empty() ? "1f1b" : c.schedule;
  using Mode = schedule::Recompute;
  job.recompute.mode = c.recompute == "full" ? Mode::full : c.recompute == "none" ? Mode::none : Mode::selective;
  job.recompute.values = {"hidden", "attended"};
  const bool local = c.accumulation == "local";
  job.local_accumulation = local;
  job.ordered = !local;
  job.global_micro_batches = c.accumulation == "1" ? data : c.accumulation == "leftover" ? 4 * data - 1 : 3 * data;
  // Pipelines want more micro-batches to be what they are.
  if (c.accumulation == "3" && c.pp > 1) job.global_micro_batches = c.pp * 2 * data;
  job.ragged = c.accumulation != "1";
  return job;
}

double Verdict::worst() const { return std::max({loss, norm, gradients, parameters}); }

namespace {

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return worst;
}

// The one-rank run of a cell: shared by all cells that differ only in how ranks divide the work.
const Outcome& one_rank(const MatrixCell& cell, const Job& job) {
  static std::map<std::string, Outcome> known;
  const std::string key = fmt::format(
      "{} {} {} {} {} {} {} {} {} {}", cell.tied, cell.kv_heads, cell.gpt2, cell.relative, job.global_micro_batches,
      job.ragged, static_cast<int>(job.precision.compute), cell.adapted, cell.dropping, job.max_norm.has_value());
  if (const auto it = known.find(key); it != known.end()) return it->second;
  Job one{.model = job.model, .precision = job.precision, .steps = job.steps};
  one.global_micro_batches = job.global_micro_batches;
  one.shape = job.shape;
  one.ragged = job.ragged;
  one.adapters = job.adapters;
  one.documents = job.documents;
  one.max_norm = job.max_norm;
  return known[key] = run(one);
}

}  // namespace

Verdict judge(const MatrixCell& cell, const model::Precision& precision, const std::string& backend, bool gives_up,
              bool on_gpu) {
  Job job = job_of(cell, precision);
  job.on_gpu = on_gpu;
  job.backend = backend;
  job.gives_up = gives_up;
  Verdict v;
  const Outcome& one = one_rank(cell, job);
  try {
    const Outcome many = run(job);
    v.loss = distance(many.losses, one.losses);
    v.norm = distance(many.norms, one.norms);
    if (!job.steps_in_backward) v.gradients = relative_distance(many.gradients, one.gradients);
    v.parameters = relative_distance(many.parameters, one.parameters);
    v.memory_exact = many.planned == many.allocated;
  } catch (const UsageError& e) {
    v.refused = true;
    v.reason = e.what();
  }
  return v;
}

}  // namespace trireme::engine
