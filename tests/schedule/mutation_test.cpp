// The campaign: thousands of right schedules, each damaged in one place on one rank. The validator has to refuse the
// damage, or the interpreter has to show that it changes nothing. TRIREME_SLOW=1 runs the full count;
// TRIREME_SEED another sequence.
#include "mutation.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>

#include "example.h"
#include "interpreter.h"
#include "trireme/schedule/validate.h"

namespace trireme::schedule {
namespace {

using Strategy = Example::Strategy;

std::vector<Example> examples() {
  std::vector<Example> all;
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3})
    for (int shards : {1, 2, 3})
      for (bool recompute : {false, true})
        all.push_back({.blocks = 2, .strategy = strategy, .shards = shards, .recompute = recompute});
  for (Strategy strategy : {Strategy::zero2, Strategy::zero3})
    for (bool ordered : {false, true}) {
      all.push_back({.blocks = 2, .strategy = strategy, .replicas = 2, .ordered = ordered});  // hybrid
      all.push_back({.blocks = 2, .strategy = strategy, .ordered = false, .local = true});
    }
  for (Strategy strategy : {Strategy::ddp, Strategy::zero3})
    for (const char* pipeline : {"", "1f1b", "zb_h1", "zb_v"})
      for (bool tied : {false, true})
        all.push_back({.blocks = 3,
                       .strategy = strategy,
                       .micro_batches = 3,
                       .ordered = false,
                       .local = true,
                       .recompute = tied,
                       .pipeline = pipeline,
                       .stage_ranks = *pipeline ? 2 : 1,
                       .tied_to_head = tied ? 0 : -1});
  all.push_back({.blocks = 2, .strategy = Strategy::zero3, .micro_batches = 1, .tied_to_head = 0});
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3})
    for (const char* pipeline : {"", "zb_h1"})
      all.push_back({.blocks = 3,
                     .strategy = strategy,
                     .recompute = true,
                     .pipeline = pipeline,
                     .stage_ranks = *pipeline ? 2 : 1,
                     .tied_to_head = 2,
                     .frozen = {0, 2}});
  all.push_back({.blocks = 4, .strategy = Strategy::zero3, .prefetch = {.depth = 2}, .reduce_lag = 3});
  const OffloadSettings everything{.optimizer = Tier::disk,
                                   .master = Tier::disk,
                                   .parameters = Tier::cpu,
                                   .gradients = Tier::cpu,
                                   .activations = Tier::disk};
  for (const char* pipeline : {"", "1f1b", "zb_h1"})
    for (bool local : {false, true})
      all.push_back({.blocks = 4,
                     .strategy = Strategy::zero3,
                     .ordered = !local,
                     .local = local,
                     .recompute = local,
                     .pipeline = pipeline,
                     .stage_ranks = *pipeline ? 2 : 1,
                     .offload = everything,
                     .stays = local ? std::set<int>{2} : std::set<int>{}});
  all.push_back({.blocks = 4, .strategy = Strategy::ddp, .shards = 1, .offload = everything});
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3})
    for (const char* pipeline : {"", "1f1b", "zb_h1"})
      for (bool local : {false, true})
        all.push_back({.blocks = 3,
                       .strategy = strategy,
                       .replicas = strategy >= Strategy::zero2 && !*pipeline ? 2 : 1,
                       .micro_batches = local || *pipeline ? 2 : 1,
                       .ordered = !local,
                       .local = local,
                       .pipeline = pipeline,
                       .stage_ranks = *pipeline ? 2 : 1,
                       .tied_to_head = local ? 0 : -1,
                       .frozen = local ? std::set<int>{2} : std::set<int>{},
                       .steps_in_backward = true});
  for (int micro_batches : {1, 2})
    all.push_back({.blocks = 4,
                   .strategy = Strategy::zero3,
                   .micro_batches = micro_batches,
                   .offload = everything,
                   .step_tile = 3 * 4096,
                   .steps_in_backward = true});
  for (const auto& frozen : {std::set<int>{0, 1}, {2, 3}})  // a stage that trains nothing
    all.push_back({.blocks = 2,
                   .strategy = Strategy::zero2,
                   .micro_batches = 2,
                   .pipeline = "1f1b",
                   .stage_ranks = 2,
                   .frozen = frozen,
                   .steps_in_backward = true});
  for (const PipelineSchedule& s : pipeline_schedules())
    for (int ranks : {2, 4})
      for (bool tied : {false, true})
        for (Strategy strategy : {Strategy::ddp, Strategy::zero3})
          all.push_back({.blocks = std::max(2, ranks * s.default_chunks - 2),
                         .strategy = strategy,
                         .shards = ranks == 2 ? 2 : 1,
                         .micro_batches = ranks,
                         .recompute = strategy == Strategy::zero3,
                         .pipeline = std::string(s.name),
                         .stage_ranks = ranks,
                         .tied_to_head = tied ? 0 : -1});
  return all;
}

struct Case {
  Job job;
  Outcome right;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Example& e : examples())
    for (bool train : {true, true, false}) {
      if (!train && e.recompute) continue;
      Case c{.job = make_job(e, train), .right = {}};
      c.right = interpret(c.job.programs);
      EXPECT_EQ(c.right.trouble, "") << describe(e);
      for (const std::string& p : validate_ranks(rank_lists(c.job))) ADD_FAILURE() << describe(e) << ": " << p;
      all.push_back(std::move(c));
    }
  return all;
}

int number(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

struct Tally {
  int refused = 0, strict = 0, harmless = 0, silent = 0, named = 0, named_first = 0;
};

bool names_it(const std::string& sentence, int rank, const Mutation& m) {
  if (sentence.find(fmt::format("rank {}", rank)) == std::string::npos) return false;
  return std::any_of(m.names.begin(), m.names.end(),
                     [&](const std::string& name) { return sentence.find(name) != std::string::npos; });
}

class Campaign {
 public:
  void run(int mutations, unsigned seed) {
    std::mt19937 random(seed);
    const std::vector<Case> all = cases();
    while (done_ < mutations) {
      const Case& c = all[random() % all.size()];
      const auto rank = static_cast<int>(random() % c.job.programs.size());
      Schedule list = *c.job.programs[rank].schedule;
      const auto damage = static_cast<Damage>(random() % static_cast<unsigned>(Damage::count));
      const auto m = mutate(list, damage, c.job.example.stage_ranks, random);
      if (m) judge(c, rank, list, *m), ++done_;
    }
  }

  void print() const {
    fmt::print("{:<15} {:>8} {:>7} {:>12} {:>9} {:>9} {:>7}\n", "damage", "refused", "named", "named first", "strictly",
               "harmless", "silent");
    Tally sum;
    const auto row = [](const char* name, const Tally& t) {
      fmt::print("{:<15} {:>8} {:>6.1f}% {:>11.1f}% {:>9} {:>9} {:>7}\n", name, t.refused,
                 100.0 * t.named / std::max(1, t.refused), 100.0 * t.named_first / std::max(1, t.refused), t.strict,
                 t.harmless, t.silent);
    };
    for (int d = 0; d < static_cast<int>(Damage::count); ++d) {
      const Tally& t = tallies_[d];
      row(name_of(static_cast<Damage>(d)), t);
      sum.refused += t.refused, sum.harmless += t.harmless, sum.silent += t.silent;
      sum.named += t.named, sum.named_first += t.named_first, sum.strict += t.strict;
    }
    row("all", sum);
  }
  Tally total() const {
    Tally sum;
    for (const Tally& t : tallies_) sum.refused += t.refused, sum.silent += t.silent, sum.named += t.named;
    return sum;
  }

 private:
  void judge(const Case& c, int rank, const Schedule& list, const Mutation& m) {
    Tally& t = tallies_[static_cast<int>(m.damage)];
    auto ranks = rank_lists(c.job);
    ranks[rank].program.schedule = &list;
    const auto problems = validate_ranks(ranks);
    const auto where = [&] {
      return fmt::format("{}, {}, rank {}: {} ({})", describe(c.job.example), list.name, rank, m.what,
                         name_of(m.damage));
    };
    auto programs = c.job.programs;
    programs[rank].schedule = &list;
    // Names out of range run nowhere, and are not for the interpreter.
    const bool same = !in_range(list) ? false : interpret(programs) == c.right;
    if (problems.empty()) {
      ++(same ? t.harmless : t.silent);
      if (!same && ++shown_ < 20)
        ADD_FAILURE() << "not refused, and harmful: " << where() << "\n  " << interpret(programs).trouble;
      return;
    }
    ++t.refused;
    t.strict += same;
    t.named_first += names_it(problems.front(), rank, m);
    const bool named =
        std::any_of(problems.begin(), problems.end(), [&](const auto& p) { return names_it(p, rank, m); });
    t.named += named;
    if (!named && ++shown_ < 20) ADD_FAILURE() << "refused without a name: " << where() << "\n  " << problems.front();
  }

  static bool in_range(const Schedule& s) {
    return std::all_of(s.actions.begin(), s.actions.end(), [&](const Action& a) {
      const size_t owners = is_transfer(a.kind) ? s.values.size() : std::min(s.unit_names.size(), s.group_names.size());
      return a.owner < static_cast<int>(owners);
    });
  }

  std::array<Tally, static_cast<size_t>(Damage::count)> tallies_{};
  int done_ = 0, shown_ = 0;
};

TEST(Mutation, EveryDamageIsRefusedByNameOrHarmless) {
  const int mutations = std::getenv("TRIREME_SLOW") != nullptr ? 10000 : 1000;
  const auto seed = static_cast<unsigned>(number("TRIREME_SEED", 1));
  fmt::print("seed {}, {} mutations\n", seed, mutations);
  const auto start = std::chrono::steady_clock::now();
  Campaign campaign;
  campaign.run(mutations, seed);
  campaign.print();
  fmt::print("{:.1f} s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  EXPECT_EQ(campaign.total().silent, 0);
  EXPECT_EQ(campaign.total().named, campaign.total().refused);
}

}  // namespace
}  // namespace trireme::schedule
