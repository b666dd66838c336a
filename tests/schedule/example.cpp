#include "example.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::schedule {
namespace {

constexpr int64_t kBoundary = 8192;

UnitDeclaration embedding_unit(const Example& e) {
  UnitDeclaration u{.name = "embedding", .groups = {0}, .output_bytes = kBoundary, .backward_work = {{"order", 1024}}};
  u.forward_groups = {0};
  u.forward_cost = 1, u.input_cost = 1, u.weight_cost = 1;
  return u;
}

UnitDeclaration block_unit(const Example& e, int block) {
  UnitDeclaration u{.name = "block " + std::to_string(block),
                    .groups = {block + 1},
                    .output_bytes = kBoundary,
                    .saved = {{"qkv", 24576}, {"hidden", 40960}, {"rstd", 512}},
                    .forward_work = {{"normed", 8192}, {"activated", 20480}},
                    .backward_work = {{"d_normed", 8192}, {"d_qkv", 24576}},
                    .deferred = {{"dy", 8192}, {"d_qkv", 24576}},
                    .input_work = {{"d_normed", 8192}},
                    .weight_work = {{"partial", 4096}},
                    .saved_for_weight = {1}};
  if (e.recompute) u.recomputed = {1};
  u.splits_backward = true;
  u.meets[comm::UnitAxis::tp] = u.meets_in_weight_half[comm::UnitAxis::tp] = e.meets_tp;
  return u;
}

UnitDeclaration head_unit(const Example& e, int group) {
  UnitDeclaration u{.name = "head",
                    .groups = {group},
                    .forward_work = {{"logits", 65536}},
                    .backward_work = {{"logits", 65536}},
                    .backward_includes_forward = true};
  if (e.tied_to_head >= 0) u.groups.push_back(e.tied_to_head);
  return u;
}

Sharding sharding_of(const Example& e) {
  using Strategy = Example::Strategy;
  Sharding s;
  s.several_ranks = e.data_ranks() > 1;
  s.ordered = e.ordered;
  s.local = e.local;
  s.whole_gradients = e.strategy == Strategy::ddp || e.strategy == Strategy::zero1 || e.shards == 1;
  if (e.shards > 1 && e.strategy != Strategy::ddp)
    s.gather = e.strategy == Strategy::zero3 ? Gather::each_use : Gather::once;
  s.replicas = !s.whole_gradients && e.replicas > 1;
  return s;
}

StageMap stages_of(const Example& e) {
  if (e.stage_ranks == 1) return {};
  const PipelineSchedule& s = pipeline_schedule(e.pipeline);
  return {.ranks = e.stage_ranks, .chunks = e.chunks > 0 ? e.chunks : s.default_chunks, .v_shape = s.v_shape};
}

void cut(StepDeclaration& d, const Example& e) {
  d.stages = stages_of(e);
  if (d.stages.ranks == 1) return;
  if (e.units_per_stage == 0) {
    d.first_unit = balance_stages(std::vector<double>(d.units.size(), 1), d.stages.num_stages());
    return;
  }
  for (int stage = 0; stage <= d.stages.num_stages(); ++stage) d.first_unit.push_back(stage * e.units_per_stage);
}

}  // namespace

StepDeclaration declare(const Example& e, int pipeline_rank) {
  StepDeclaration d;
  d.sharding = sharding_of(e);
  d.num_micro_batches = e.micro_batches;
  d.input_bytes = d.target_bytes = 1024;
  d.prefetch = e.prefetch;
  d.reduce_lag = e.reduce_lag;
  d.offload = e.offload;
  d.steps_in_backward = e.steps_in_backward;
  const bool whole = e.strategy == Example::Strategy::ddp;
  const auto group = [&](const std::string& name, int64_t numel) {
    const bool frozen = e.frozen.contains(static_cast<int>(d.groups.size()));
    d.groups.push_back({.name = name,
                        .numel = numel,
                        .owned = whole ? numel : numel / e.shards,
                        .trained = !frozen,
                        .compute_bytes = e.mixed ? 2 : 4,
                        .state_bytes = e.mixed && frozen ? 2 : 4});
    if (d.groups.back().owned > e.step_tile) d.groups.back().step_tile = frozen ? 0 : e.step_tile;
    d.groups.back().leaves = !e.stays.contains(static_cast<int>(d.groups.size()) - 1);
    if (frozen) d.groups.back().optimizer_state.clear();
  };
  group("embedding", 8 * 4096);
  d.units.push_back(embedding_unit(e));
  for (int b = 0; b < e.blocks; ++b) {
    d.units.push_back(block_unit(e, b));
    group(d.units.back().name, 16 * 4096);
  }
  group("head", 8 * 4096);
  d.units.push_back(head_unit(e, e.blocks + 1));
  // As the plan declares them: with nothing to train there is no weight half.
  for (UnitDeclaration& u : d.units) u.splits_backward = u.splits_backward && !trained_groups(d, u.groups).empty();
  cut(d, e);
  d.pipeline_rank = pipeline_rank;
  for (int g = 0; g < static_cast<int>(d.groups.size()); ++g) {
    std::vector<int> holders;
    for (int u = 0; u < static_cast<int>(d.units.size()); ++u)
      if (std::count(d.units[u].groups.begin(), d.units[u].groups.end(), g))
        holders.push_back(d.stages.rank_of(stage_of_unit(d, u)));
    d.groups[g].tied_over_stages =
        std::any_of(holders.begin(), holders.end(), [&](int h) { return h != holders.front(); });
  }
  d.norm_blocks = 8;
  d.norm_ranks = e.world_size();
  d.all_losses = static_cast<int64_t>(e.data_ranks()) * e.micro_batches;
  return d;
}

static PipelineTiming one_rank_timing(int micro_batches, bool train) {
  const PipelineSchedule& s = pipeline_schedule("1f1b");
  return train ? time_pipeline(s, 1, 1, micro_batches) : time_forward_only(s, 1, 1, micro_batches);
}

PipelineTiming timing_of(const Example& e, bool train) {
  if (e.stage_ranks == 1) return one_rank_timing(e.micro_batches, train);
  const PipelineSchedule& s = pipeline_schedule(e.pipeline);
  const int chunks = stages_of(e).chunks;
  return train ? time_pipeline(s, e.stage_ranks, chunks, e.micro_batches)
               : time_forward_only(s, e.stage_ranks, chunks, e.micro_batches);
}

std::string describe(const Example& e) {
  static constexpr const char* kNames[] = {"ddp", "zero1", "zero2", "zero3"};
  std::string text = fmt::format("{} {}x{}, {} micro-batches", kNames[static_cast<int>(e.strategy)], e.shards,
                                 e.replicas, e.micro_batches);
  if (e.stage_ranks > 1) text += fmt::format(", {} over {}", e.pipeline, e.stage_ranks);
  if (e.chunks > 0) text += fmt::format(" x {}", e.chunks);
  if (e.local) text += ", local";
  if (e.recompute) text += ", recompute";
  if (e.tied_to_head >= 0) text += ", tied";
  if (e.steps_in_backward) text += ", steps in backward";
  if (e.offload.any()) text += ", offloaded";
  if (!e.frozen.empty()) text += fmt::format(", {} groups frozen", e.frozen.size());
  return text;
}

StepDeclaration example_step(int blocks, int ranks, bool shard, int micro_batches) {
  return declare({.blocks = blocks,
                  .strategy = shard ? Example::Strategy::zero3 : Example::Strategy::ddp,
                  .shards = ranks,
                  .micro_batches = micro_batches});
}

void recompute_everything(StepDeclaration& step) {
  for (UnitDeclaration& u : step.units)
    for (int i = 0; i < static_cast<int>(u.saved.size()); ++i) u.recomputed.push_back(i);
}

Schedule training_schedule(const StepDeclaration& step) {
  return make_list(List::train, step, one_rank_timing(step.num_micro_batches, true));
}
Schedule evaluation_schedule(const StepDeclaration& step) {
  return make_list(List::evaluate, step, one_rank_timing(step.num_micro_batches, false));
}

namespace {

// The groups of ranks that a rank meets, as trireme/plan makes them.
RankProgram program_of(const Job& job, const StepDeclaration& d, int rank) {
  const Example& e = job.example;
  const int data = e.data_ranks(), stage = rank / data, replica = rank % data / e.shards, shard = rank % e.shards;
  const auto rank_at = [&](int p, int r, int s) { return p * data + r * e.shards + s; };
  std::vector<int> shards, replicas, everyone_here, all, stages;
  for (int s = 0; s < e.shards; ++s) shards.push_back(rank_at(stage, replica, s));
  for (int r = 0; r < e.replicas; ++r) replicas.push_back(rank_at(stage, r, shard));
  for (int s = 0; s < e.shards; ++s)
    for (int r = 0; r < e.replicas; ++r) everyone_here.push_back(rank_at(stage, r, s));
  for (int r = 0; r < e.world_size(); ++r) all.push_back(r);
  for (int p = 0; p < e.stage_ranks; ++p) stages.push_back(rank_at(p, replica, shard));
  const bool ddp = e.strategy == Example::Strategy::ddp;
  RankProgram program{.schedule = &job.lists[stage], .members = {}, .stages = stages};
  if (!ddp) program.members[QueueKind::gather] = shards;
  if (!ddp) program.members[QueueKind::replicas] = replicas;
  program.members[QueueKind::reduce] = e.ordered || d.sharding.whole_gradients ? everyone_here : shards;
  program.members[QueueKind::loss] = all;
  program.members[QueueKind::norm] = all;
  std::vector<int> tied;
  for (const UnitDeclaration* u : {&d.units.front(), &d.units.back()})
    for (int g : u->groups)
      if (d.groups[g].tied_over_stages) tied.push_back(stages[u == &d.units.front() ? 0 : stages.size() - 1]);
  if (std::count(tied.begin(), tied.end(), rank) != 0) program.members[QueueKind::tied] = tied;
  return program;
}

}  // namespace

Job make_job(const Example& e, bool train) {
  Job job{.example = e, .lists = {}, .arenas = {}, .programs = {}};
  const PipelineTiming timing = timing_of(e, train);
  for (int p = 0; p < e.stage_ranks; ++p) {
    const StepDeclaration d = declare(e, p);
    job.lists.push_back(make_list(train ? List::train : List::evaluate, d, timing));
    job.arenas.push_back(place({&job.lists.back(), 1}));
  }
  for (int r = 0; r < e.world_size(); ++r) job.programs.push_back(program_of(job, declare(e), r));
  return job;
}

std::vector<RankList> rank_lists(const Job& job) {
  std::vector<RankList> out;
  for (int r = 0; r < job.example.world_size(); ++r) out.push_back({job.programs[r], &job.arenas[job.stage_of(r)]});
  return out;
}

}  // namespace trireme::schedule
