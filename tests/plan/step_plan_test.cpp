#include "trireme/plan/step_plan.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "trireme/plan/activity.h"
#include "trireme/plan/stage_plans.h"

namespace trireme::plan {
namespace {

// A plan and the model it refers to.
struct Planned {
  std::unique_ptr<model::Model> model;
  StepPlan plan;
};

Planned plan_of(const std::string& name, StepRequest request,
                model::Precision precision = {at::kBFloat16, at::kFloat}) {
  request.precision = precision;
  Planned p{std::make_unique<model::Model>(
                model::build_model(model::catalogue_config(name), request.precision, request.parallel())),
            {}};
  p.plan = make_step_plan(*p.model, request);
  return p;
}

comm::ProcessMesh sharded(int ranks) { return {{.shard = ranks}, ranks}; }

TEST(StepPlan, RowsSumToTheArenaAndItLiesWithinOnePercentOfTheBound) {
  using Mode = schedule::Recompute;
  for (Strategy strategy : {Strategy::no_shard, Strategy::zero1, Strategy::shard_grad_op, Strategy::full_shard})
    for (Mode recompute : {Mode::none, Mode::selective, Mode::full})
      for (int ranks : {1, 2, 8}) {
        const Planned p = plan_of("llama-32m", {.shape = {2, 512},
                                                .mesh = sharded(ranks),
                                                .strategy = strategy,
                                                .num_micro_batches = 2,
                                                .recompute = {.mode = recompute}});
        const MemoryReport report = memory_report(p.plan);
        int64_t sum = 0;
        for (const MemoryRow& row : report.rows) sum += row.bytes;
        EXPECT_EQ(sum, p.plan.arena.total());
        EXPECT_LE(double(report.total_bytes), 1.01 * double(report.lower_bound_bytes))
            << ranks << " ranks, strategy " << static_cast<int>(strategy);
        EXPECT_GE(report.total_bytes, report.lower_bound_bytes);
      }
}

TEST(StepPlan, ThePeakOfARunThatAlsoSamplesNamesTheLargestPhase) {
  for (const int64_t pages : {int64_t{9}, int64_t{4096}}) {
    const Planned p = plan_of("llama-5m", {.shape = {4, 256},
                                           .generation = {.rows = 64, .logit_rows = 8, .pages = pages},
                                           .mesh = sharded(1),
                                           .strategy = Strategy::no_shard});
    const MemoryReport report = memory_report(p.plan);
    ASSERT_EQ(report.phases.size(), 3u);
    EXPECT_EQ(report.peak_action == "answers, with their cache", pages == 4096) << report.peak_action;
  }
}

// Nothing is saved for a backward that there is not.
TEST(StepPlan, RowsOfGenerationSumToTheArenaWithoutSavedActivations) {
  const model::Precision precision{at::kFloat, at::kFloat};
  const model::Model model = model::build_model(model::catalogue_config("llama-5m"), precision, {}, {.trains = false});
  const StepPlan plan = make_step_plan(
      model, {.precision = precision, .trains = false, .generation = {.rows = 64, .logit_rows = 8, .pages = 9}});
  const MemoryReport report = memory_report(plan);
  int64_t sum = 0;
  std::vector<std::string> causes;
  for (const MemoryRow& row : report.rows) {
    sum += row.bytes;
    if (row.bytes != 0) causes.push_back(row.cause);
  }
  EXPECT_EQ(sum, plan.arena.total());
  EXPECT_EQ(causes, (std::vector<std::string>{"weights: frozen", "one unit's work, logits", "batches and messages",
                                              "cache of generation"}));
}

// What QLoRA's guides plan: 7 and 8 billion parameters on 4 ranks, 70 on 8, 405 on 64.
TEST(StepPlan, MatricesInFewBitsTakeTheirBitsAndNoMore) {
  struct Case {
    const char* model;
    int ranks;
    base::BlockFormat format;
    double bits;
  };
  for (const Case& c : {Case{"llama-3-8b", 1, base::BlockFormat::nf4, 4.5},
                        {"llama-3-8b", 1, base::BlockFormat::q8_0, 8.5},
                        {"llama-3-8b", 4, base::BlockFormat::q4_0, 4.5},
                        {"llama-3-8b", 1, base::BlockFormat::nf4_nested, 4 + 8.0 / 64 + 32.0 / 64 / 256},
                        {"llama-2-7b", 4, base::BlockFormat::nf4_nested, 4.127},
                        {"llama-3-70b", 8, base::BlockFormat::nf4_nested, 4.127},
                        {"llama-3.1-405b", 64, base::BlockFormat::nf4_nested, 4.127}}) {
    SCOPED_TRACE(testing::Message() << c.model << " on " << c.ranks);
    model::ModelConfig config = model::catalogue_config(c.model);
    config.quantized = c.format;
    model::Adapters adapters;
    double elements = 0;
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
      for (const char* module : {"self_attn.q_proj", "self_attn.v_proj"})
        adapters.modules[fmt::format("model.layers.{}.{}", layer, module)] = {.rank = 16};
    const StepRequest request{.precision = {at::kBFloat16, at::kFloat},
                              .shape = {1, 512},
                              .mesh = sharded(c.ranks),
                              .strategy = c.ranks > 1 ? Strategy::full_shard : Strategy::no_shard,
                              .recompute = {.mode = schedule::Recompute::full}};
    const model::Model model = model::build_model(config, request.precision, request.parallel(), {}, adapters);
    for (const model::ParameterGroup& group : model.groups)
      for (const model::ParameterSpec& p : group.parameters)
        if (p.is_quantized()) elements += double(p.numel());
    const StepPlan plan = make_step_plan(model, request);
    const MemoryReport report = memory_report(plan);
    const std::string cause = fmt::format("weights: {}", base::traits_of(c.format).name);
    const auto row = std::ranges::find(report.rows, cause, &MemoryRow::cause);
    ASSERT_NE(row, report.rows.end());
    EXPECT_NEAR(8 * double(row->bytes) * c.ranks / elements, c.bits, c.ranks == 1 ? 1e-3 : 5e-3);
    // An unshard moves as many: nothing is widened before it is used.
    for (int g : plan.local_groups)
      if (plan.storage[static_cast<size_t>(g)].quantized != base::BlockFormat::none) {
        double of_group = 0;
        for (const model::ParameterSpec& p : model.groups[static_cast<size_t>(g)].parameters)
          of_group += double(p.numel());
        EXPECT_NEAR(8 * double(plan.layouts[static_cast<size_t>(g)].numel()) / of_group, c.bits, 5e-3);
      }
    EXPECT_NE(render_states(plan).find(fmt::format("frozen in {}", base::traits_of(c.format).name)), std::string::npos);
  }
}

TEST(StepPlan, RowsTellFrozenWeightsAdaptersAndWholeModulesApart) {
  const model::ModelConfig config = model::catalogue_config("llama-32m");
  model::Adapters adapters{.whole = {"model.norm"}};
  for (const char* module : {"lm_head", "model.embed_tokens", "model.layers.0.self_attn.q_proj"})
    adapters.modules[module] = {.rank = 128};  // groups are padded, which small ones show
  for (const Strategy strategy : {Strategy::no_shard, Strategy::full_shard}) {
    const StepRequest request{
        .precision = {at::kBFloat16, at::kFloat}, .shape = {1, 64}, .mesh = sharded(2), .strategy = strategy};
    const model::Model model = model::build_model(config, request.precision, request.parallel(), {}, adapters);
    const MemoryReport report = memory_report(make_step_plan(model, request));
    std::map<std::string, double> mib;
    int64_t sum = 0;
    for (const MemoryRow& row : report.rows) {
      mib[row.cause] += double(row.bytes);
      sum += row.bytes;
    }
    EXPECT_EQ(sum, report.total_bytes);
    const double share = strategy == Strategy::no_shard ? 1 : 0.5, frozen = double(config.num_parameters()),
                 trained = double(model.num_adapter_parameters());
    EXPECT_NEAR(mib["weights: frozen"] / (share * 2 * frozen), 1, 0.02);
    EXPECT_NEAR(mib["optimizer moments: adapters"] / (share * 8 * trained), 1, 0.02);
    EXPECT_GT(mib["optimizer moments: trained"], 0);
    EXPECT_EQ(mib.count("optimizer moments: frozen") + mib.count("gradients (shard): frozen") + mib.count("weights"),
              0);
  }
}

// A host needs whole gradients once, unless a rank first sums its own there or adds what other stages hold.
TEST(StepPlan, WholeGradientsLieOnceOnAHost) {
  using schedule::Memory;
  const auto arena_of = [](const char* model, StepRequest request) {
    request.shape = {2, 64};
    const Planned p = plan_of(model, request);
    int64_t gradients = 0;
    for (int g : p.plan.local_groups) gradients += 4 * p.plan.layouts[g].numel();
    return std::pair(p.plan.arena, gradients);
  };
  for (Strategy strategy : {Strategy::no_shard, Strategy::zero1}) {
    const auto [shared, bytes] = arena_of("llama-32m", {.mesh = sharded(2), .strategy = strategy});
    EXPECT_EQ(shared.of(Memory::host_reduced), bytes);
    const auto [local, same] = arena_of(
        "llama-32m",
        {.mesh = sharded(2), .strategy = strategy, .reduce = Reduce::fast, .accumulation = Accumulation::local});
    EXPECT_EQ(local.of(Memory::host_reduced), 0);
  }
  EXPECT_EQ(arena_of("llama-32m", {.mesh = sharded(1)}).first.of(Memory::host_reduced), 0);
  EXPECT_EQ(
      arena_of("llama-32m", {.mesh = sharded(2), .strategy = Strategy::full_shard}).first.of(Memory::host_reduced), 0);
  const auto [tied, bytes] = arena_of("gpt2", {.mesh = {{.pp = 2, .shard = 2}, 4}});
  EXPECT_LT(tied.of(Memory::host_reduced), bytes);
  EXPECT_GT(tied.of(Memory::host_reduced), 0);
}

// A host has one copy of what groups share that lie on it.
// A rank that owns less of a group has fewer copies to make, and fewer tiles to step through.
TEST(StepPlan, RanksPlaceAlikeWhatTheyShare) {
  using schedule::Tier;
  for (const Strategy strategy : {Strategy::no_shard, Strategy::zero1, Strategy::shard_grad_op, Strategy::full_shard})
    for (const bool steps_in_backward : {false, true}) {
      std::map<std::string, int64_t> first;
      for (int rank = 0; rank < 3; ++rank) {
        const Planned p = plan_of("llama-32m", {.shape = {2, 128},
                                                .mesh = sharded(3),
                                                .rank = rank,
                                                .strategy = strategy,
                                                .num_micro_batches = 2,
                                                .steps_in_backward = steps_in_backward,
                                                .offload = {.optimizer = Tier::disk, .master = Tier::cpu}});
        std::map<std::string, int64_t> places;
        for (const schedule::Value& v : p.plan.train().values)
          if (v.memory == schedule::Memory::host_shared || v.memory == schedule::Memory::host_reduced)
            places[v.label] = v.offset;
        if (rank == 0) first = places;
        EXPECT_EQ(places, first) << "rank " << rank << ", strategy " << static_cast<int>(strategy);
      }
    }
}

TEST(StepPlan, BytesOnAHostCountARanksPartOfASharedCopy) {
  using schedule::Memory;
  const Planned p =
      plan_of("llama-32m", {.shape = {2, 64}, .mesh = {{.shard = 2, .tp = 2}, 4}, .strategy = Strategy::zero1});
  const int64_t own = p.plan.arena.private_bytes(), gathered = p.plan.arena.of(Memory::host_shared),
                reduced = p.plan.arena.of(Memory::host_reduced);
  ASSERT_GT(gathered, 0);
  ASSERT_GT(reduced, 0);
  EXPECT_EQ(bytes_on_host(p.plan, 4, true), own + gathered / 2 + reduced / 2);  // a group of two for each tp rank
  EXPECT_EQ(bytes_on_host(p.plan, 4, false), p.plan.arena.total());
  EXPECT_EQ(bytes_on_host(p.plan, 2, true), p.plan.arena.total());  // both groups reach to another host
}

TEST(StepPlan, AModelOfEightBillionParametersIsPlannedWithoutItsMemory) {
  const Planned p = plan_of("llama-3-8b", {.shape = {1, 8192},
                                           .mesh = sharded(64),
                                           .strategy = Strategy::full_shard,
                                           .recompute = {.mode = schedule::Recompute::full}});
  const double gib = double(p.plan.arena.total()) / (1 << 30);
  // 8.03e9 x (4 + 4 + 4 + 4 + 2) / 64 = 2.1 GiB of state and the activations of 8192 tokens.
  EXPECT_GT(gib, 2.1);
  EXPECT_LT(gib, 20);
}

// Thirty configurations over all axes: every rank's arena is what its rows say, and near the bound that no placement
// can pass.
TEST(StepPlan, ArenasOfAllAxesLieNearTheBound) {
  struct Case {
    comm::MeshSizes mesh;
    Strategy strategy;
    const char* schedule = "1f1b";
    bool sequence_parallel = false, local = false;
    schedule::Recompute recompute = schedule::Recompute::none;
  };
  using Mode = schedule::Recompute;
  std::vector<Case> cases;
  for (Strategy strategy : {Strategy::no_shard, Strategy::zero1, Strategy::shard_grad_op, Strategy::full_shard}) {
    cases.push_back({{.shard = 3}, strategy});
    cases.push_back({{.shard = 2, .tp = 2}, strategy, "1f1b", true});
    cases.push_back({{.shard = 2, .cp = 2}, strategy, "1f1b", false, false, Mode::selective});
    cases.push_back({{.pp = 2, .shard = 2}, strategy, "zb_h1"});
  }
  for (const char* schedule : {"gpipe", "1f1b", "interleaved_1f1b", "breadth_first", "zb_h1", "zb_v"}) {
    cases.push_back({{.pp = 2, .shard = 1}, Strategy::no_shard, schedule, false, false, Mode::full});
    cases.push_back({{.pp = 4, .shard = 2}, Strategy::full_shard, schedule});
  }
  cases.push_back({{.replicate = 2, .shard = 2}, Strategy::full_shard, "1f1b", false, true});
  cases.push_back({{.replicate = 2, .shard = 2}, Strategy::shard_grad_op});
  ASSERT_GE(cases.size(), 30u);
  int within = 0, beyond = 0;
  double worst = 0;
  for (const Case& c : cases) {
    const int ranks = c.mesh.pp * c.mesh.replicate * c.mesh.shard * c.mesh.cp * c.mesh.tp;
    for (int rank = 0; rank < ranks; ++rank) {
      StepRequest r{.shape = {2, 512}, .mesh = {c.mesh, ranks}, .rank = rank, .strategy = c.strategy};
      r.num_micro_batches = 8;
      r.pipeline.schedule = c.schedule;
      r.sequence_parallel = c.sequence_parallel;
      r.accumulation = c.local ? Accumulation::local : Accumulation::sharded;
      r.reduce = c.local ? Reduce::fast : Reduce::ordered;
      r.recompute.mode = c.recompute;
      const Planned p = plan_of("llama-32m", r);
      const MemoryReport report = memory_report(p.plan);
      int64_t sum = 0;
      for (const MemoryRow& row : report.rows) sum += row.bytes;
      EXPECT_EQ(sum, p.plan.arena.total());
      const double above = double(report.total_bytes) / double(report.lower_bound_bytes) - 1;
      worst = std::max(worst, above);
      (above <= 0.01 ? within : beyond) += 1;
      EXPECT_LE(above, 0.045) << p.plan.request.mesh.describe() << "rank " << rank << " strategy "
                              << static_cast<int>(c.strategy) << " " << c.schedule;
    }
  }
  // Where gradients' weight halves wait across micro-batches, lifetimes interlock and leave holes.
  fmt::print("{} configurations: arenas of {} ranks within 1 % of the bound, of {} beyond, the worst {:.1f} % above\n",
             cases.size(), within, beyond, 100 * worst);
  EXPECT_GE(within, 15 * beyond);
}

TEST(StepPlan, OfAllStagesAtOnceIsThatOfEachRank) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1", "zb_v"})
    for (const char* name : {"llama-32m", "gpt2"}) {  // the latter's weights are tied over the pipeline
      StepRequest r{.shape = {1, 128}, .mesh = {{.pp = 3, .shard = 2}, 6}, .rank = 1, .strategy = Strategy::full_shard};
      r.precision = {at::kBFloat16, at::kFloat};
      r.num_micro_batches = 6;
      r.pipeline.schedule = schedule;
      const model::Model model = model::build_model(model::catalogue_config(name), r.precision, r.parallel());
      const std::vector<StepPlan> plans = make_stage_plans(model, r, PlacedStages::all),
                                  quick = make_stage_plans(model, r, PlacedStages::fullest);
      ASSERT_EQ(plans.size(), 3u);
      for (size_t stage = 0; stage < plans.size(); ++stage) {
        const int rank = r.mesh.group(1, {comm::Axis::pp})[stage];
        const StepPlan alone = make_step_plan(model, r.of_rank(rank));
        EXPECT_EQ(plans[stage].request.rank, rank);
        EXPECT_EQ(plans[stage].arena.bytes, alone.arena.bytes) << name << " " << schedule << " stage " << stage;
        EXPECT_EQ(plans[stage].local_groups, alone.local_groups);
        EXPECT_EQ(plans[stage].tied_groups, alone.tied_groups);
        EXPECT_EQ(plans[stage].groups.gather, alone.groups.gather);
        const auto &values = plans[stage].train().values, &expected = alone.train().values;
        ASSERT_EQ(values.size(), expected.size());
        for (size_t v = 0; v < values.size(); ++v) EXPECT_EQ(values[v].offset, expected[v].offset);
        EXPECT_GE(quick[stage].arena.total(), alone.arena.total());
      }
      const auto total = [](const StepPlan& p) { return p.arena.total(); };
      const StepPlan &fullest = *std::ranges::max_element(plans, {}, total),
                     &found = *std::ranges::max_element(quick, {}, total);
      EXPECT_EQ(found.request.rank, fullest.request.rank) << name << " " << schedule;
      EXPECT_EQ(found.arena.bytes, fullest.arena.bytes) << name << " " << schedule;
    }
}

// Thousands of ranks have few groups: each is made once.
TEST(StepPlan, ProgramsOfRanksHaveTheirGroupsAndShareThem) {
  using schedule::QueueKind;
  for (const Strategy strategy : {Strategy::no_shard, Strategy::zero1, Strategy::full_shard})
    for (const Reduce reduce : {Reduce::ordered, Reduce::fast}) {
      StepRequest r{
          .shape = {1, 128}, .mesh = {{.pp = 2, .replicate = 2, .shard = 3, .tp = 2}, 24}, .strategy = strategy};
      r.reduce = reduce;
      r.num_micro_batches = 2;
      const model::Model model = model::build_model(model::catalogue_config("gpt2"), r.precision, r.parallel());
      const StepPlan plan = make_step_plan(model, r);
      const std::vector<schedule::Schedule> lists = stage_lists(model, plan, schedule::List::train);
      const std::vector<schedule::RankProgram> programs = rank_programs(plan, lists);
      ASSERT_EQ(programs.size(), 24u);
      for (int rank = 0; rank < 24; ++rank) {
        const schedule::RankProgram& p = programs[static_cast<size_t>(rank)];
        const RankGroups g = rank_groups(r.of_rank(rank));
        EXPECT_EQ(p.stages, g.stages);
        const std::pair<QueueKind, const std::vector<int>*> expected[] = {{QueueKind::gather, &g.gather},
                                                                          {QueueKind::reduce, &g.reduce},
                                                                          {QueueKind::replicas, &g.replicas},
                                                                          {QueueKind::loss, &g.loss}};
        for (const auto& [kind, group] : expected) {
          const std::span<const int> members = p.members.at(kind);
          EXPECT_TRUE(std::ranges::equal(members, *group)) << "rank " << rank;
          const std::span<const int> others = programs[static_cast<size_t>(members.front())].members.at(kind);
          EXPECT_EQ(others.data(), members.data()) << "rank " << rank;
        }
        EXPECT_EQ(std::span<const int>(p.members.at(QueueKind::norm)).size(), 24u);
      }
    }
}

TEST(StepPlan, OfStagesWhereTensorsStayWholeIsThatOfTheFullestRank) {
  for (const char* rule : {"LAMB", "Adafactor"})
    for (const Strategy strategy : {Strategy::full_shard, Strategy::shard_grad_op}) {
      StepRequest r{.shape = {1, 128}, .mesh = {{.pp = 2, .shard = 4}, 8}, .strategy = strategy};
      r.precision = {at::kBFloat16, at::kFloat};
      r.num_micro_batches = 4;
      r.optimizer = optim::options_of(rule);
      const model::Model model = model::build_model(model::catalogue_config("llama-32m"), r.precision, r.parallel());
      const std::vector<StepPlan> plans = make_stage_plans(model, r, PlacedStages::all);
      for (const StepPlan& plan : plans) {
        int64_t most = 0;
        for (const int rank : r.mesh.group(plan.request.rank, {comm::Axis::shard}))
          most = std::max(most, make_step_plan(model, r.of_rank(rank)).arena.total());
        EXPECT_EQ(plan.arena.total(), most) << rule << " rank " << plan.request.rank;
      }
    }
}

TEST(StepPlan, ARankAloneAddsUpItsMicroBatchesAndOthersCommunicate) {
  for (const int ranks : {1, 2}) {
    StepRequest r{.shape = {1, 32}, .mesh = sharded(ranks), .strategy = Strategy::no_shard};
    r.num_micro_batches = 2;
    const Planned p = plan_of("llama-5m", r);
    int reductions = 0;
    for (const schedule::Action& a : p.plan.train().actions) {
      const bool reduces =
          a.kind == schedule::ActionKind::reduce_gradient || a.kind == schedule::ActionKind::all_reduce_gradient;
      reductions += reduces ? 1 : 0;
      EXPECT_EQ(activity_of(p.plan, a),
                reduces && ranks == 1 ? base::Activity::elementwise : schedule::traits_of(a.kind).activity);
    }
    EXPECT_GT(reductions, 0);
  }
}

// Bytes of the persistent values of a kind.
int64_t bytes_of(const StepPlan& plan, std::initializer_list<schedule::ValueKind> kinds) {
  int64_t sum = 0;
  for (const schedule::Value& v : plan.train().values)
    if (v.persistent && std::find(kinds.begin(), kinds.end(), v.kind) != kinds.end()) sum += v.bytes;
  return sum;
}

// Weights, gradients, masters and moments of each strategy, in bytes a parameter.
TEST(StepPlan, ModelStatesFollowTheFormulaOfEachStrategy) {
  using Kind = schedule::ValueKind;
  const int n = 4;
  const auto states = [&](Strategy strategy, model::Precision precision) {
    double bytes = 0;  // mean over ranks: whole blocks are dealt as evenly as they divide
    int64_t parameters = 0;
    for (int rank = 0; rank < n; ++rank) {
      const Planned p =
          plan_of("llama-32m", {.shape = {1, 64}, .mesh = sharded(n), .rank = rank, .strategy = strategy}, precision);
      bytes +=
          double(bytes_of(p.plan, {Kind::weights, Kind::master, Kind::optimizer_first, Kind::optimizer_second,
                                   Kind::gradient, Kind::compute_shard, Kind::local_gradient, Kind::compensation})) /
          n;
      parameters = 0;
      for (const shard::FlatLayout& layout : p.plan.layouts) parameters += layout.numel();
    }
    return bytes / double(parameters);
  };
  const model::Precision mixed{at::kBFloat16, at::kFloat}, full{at::kFloat, at::kFloat};
  const double tolerance = 1e-9;
  EXPECT_NEAR(states(Strategy::no_shard, mixed), 18, tolerance);
  EXPECT_NEAR(states(Strategy::zero1, mixed), 6 + 12.0 / n, tolerance);
  EXPECT_NEAR(states(Strategy::shard_grad_op, mixed), 2 + 16.0 / n, tolerance);
  EXPECT_NEAR(states(Strategy::full_shard, mixed), 18.0 / n, tolerance);  // 16 P / N, and 2 P once for all N
  model::Precision textbook = mixed;  // gradients in bfloat16, as Rajbhandari et al. count them (ZeRO, 2020)
  textbook.narrow_gradients = true;
  EXPECT_NEAR(states(Strategy::no_shard, textbook), 16, tolerance);
  EXPECT_NEAR(states(Strategy::zero1, textbook), 4 + 12.0 / n, tolerance);
  EXPECT_NEAR(states(Strategy::shard_grad_op, textbook), 2 + 14.0 / n, tolerance);
  EXPECT_NEAR(states(Strategy::full_shard, textbook), 16.0 / n, tolerance);
  model::Precision narrow = textbook;  // bf16-true: weights 2, gradients 2, moments 4; and 2 for what rounding lost
  narrow.narrow_weights = true;
  EXPECT_NEAR(states(Strategy::no_shard, narrow), 8, tolerance);
  EXPECT_NEAR(states(Strategy::full_shard, narrow), 8.0 / n, tolerance);
  narrow.rounding = model::Rounding::kahan;
  EXPECT_NEAR(states(Strategy::shard_grad_op, narrow), 2 + 8.0 / n, tolerance);
  EXPECT_NEAR(states(Strategy::no_shard, full), 16, tolerance);
  EXPECT_NEAR(states(Strategy::zero1, full), 8 + 8.0 / n, tolerance);
  EXPECT_NEAR(states(Strategy::shard_grad_op, full), 4 + 12.0 / n, tolerance);
  EXPECT_NEAR(states(Strategy::full_shard, full), 16.0 / n, tolerance);
}

}  // namespace
}  // namespace trireme::plan
