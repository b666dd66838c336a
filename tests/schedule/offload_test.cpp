// Values that rest in host memory or on a disk: lists with and without them leave the same state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "example.h"
#include "interpreter.h"

namespace trireme::schedule {
namespace {

using Strategy = Example::Strategy;
using testing::HasSubstr;

std::vector<OffloadSettings> placements() {
  std::vector<OffloadSettings> all;
  for (const Tier tier : {Tier::cpu, Tier::disk}) {
    all.push_back({.optimizer = tier});
    all.push_back({.master = tier});
    all.push_back({.parameters = tier});
    all.push_back({.gradients = tier});
    all.push_back({.activations = tier});
    for (const int64_t prefetch : {0, 1, 3})
      all.push_back({.optimizer = tier,
                     .master = tier,
                     .parameters = tier,
                     .gradients = tier,
                     .activations = tier == Tier::cpu ? Tier::disk : Tier::cpu,
                     .prefetch = prefetch});
  }
  return all;
}

std::vector<Example> offload_examples() {
  std::vector<Example> all;
  for (const bool mixed : {false, true})
    for (const char* pipeline : {"", "1f1b", "zb_v"})
      for (const int replicas : {1, 2})
        all.push_back({.blocks = 4,
                       .strategy = Strategy::zero3,
                       .shards = 2,
                       .replicas = replicas,
                       .mixed = mixed,
                       .recompute = replicas == 2,
                       .pipeline = pipeline,
                       .stage_ranks = *pipeline ? 2 : 1,
                       .tied_to_head = *pipeline ? 0 : -1,
                       .frozen = mixed ? std::set<int>{2} : std::set<int>{}});
  all.push_back({.blocks = 4, .strategy = Strategy::zero2});
  all.push_back({.blocks = 4, .strategy = Strategy::zero3, .step_tile = 3 * 4096});
  all.push_back({.blocks = 4, .strategy = Strategy::zero3, .mixed = false, .step_tile = 3 * 4096});
  all.push_back({.blocks = 2, .strategy = Strategy::ddp, .shards = 1, .step_tile = 3 * 4096});
  all.push_back({.blocks = 4, .strategy = Strategy::ddp, .shards = 1});
  all.push_back({.blocks = 4, .strategy = Strategy::ddp, .shards = 1, .ordered = false, .local = true});
  all.push_back({.blocks = 4, .strategy = Strategy::zero3, .ordered = false, .local = true});
  all.push_back({.blocks = 4, .strategy = Strategy::zero3, .replicas = 2, .steps_in_backward = true});
  all.push_back({.blocks = 4, .strategy = Strategy::zero2, .step_tile = 3 * 4096, .steps_in_backward = true});
  all.push_back({.blocks = 4,
                 .strategy = Strategy::ddp,
                 .shards = 1,
                 .micro_batches = 1,
                 .mixed = false,
                 .steps_in_backward = true});
  all.push_back({.blocks = 4,
                 .strategy = Strategy::ddp,
                 .shards = 1,
                 .ordered = false,
                 .local = true,
                 .tied_to_head = 0,
                 .steps_in_backward = true});
  return all;
}

// Groups of several sizes, of which two ranks own halves, or one of them nothing.
Schedule list_of_rank(const Example& e, bool train, const std::set<int>& not_owned) {
  StepDeclaration d = declare(e);
  for (int g = 0; g < static_cast<int>(d.groups.size()); ++g) {
    GroupDeclaration& group = d.groups[static_cast<size_t>(g)];
    group.numel = (2 + 6 * g % 11) * 4096;
    group.owned = not_owned.contains(g) ? 0 : group.numel / 2;
    if (group.owned <= group.step_tile) group.step_tile = 0;
  }
  return make_list(train ? List::train : List::evaluate, d, timing_of(e, train));
}

// Such ranks move and step other values, so their lists differ.
TEST(Offload, RanksThatOwnUnlikePartsPlaceWhatTheyShareAlike) {
  const Example plain{.blocks = 6, .strategy = Strategy::zero3};
  std::vector<Example> all(3, plain);
  all[1].step_tile = 3 * 4096;
  all[2].step_tile = 3 * 4096, all[2].steps_in_backward = true;
  for (Example e : all)
    for (const bool train : {true, false})
      for (const int depth : {1, 2, 3})
        for (const OffloadSettings& offload : placements()) {
          e.prefetch.depth = depth;
          e.offload = offload;
          const Job job = make_job(e, train);
          std::vector<RankList> ranks = rank_lists(job);
          std::vector<Schedule> lists{list_of_rank(e, train, {}), list_of_rank(e, train, {0, 1, 3, 4, 6})};
          std::vector<Arena> arenas;
          for (Schedule& list : lists) arenas.push_back(place({&list, 1}));
          for (size_t r = 0; r < 2; ++r) ranks[r].program.schedule = &lists[r], ranks[r].arena = &arenas[r];
          const auto problems = validate_ranks(ranks);
          ASSERT_TRUE(problems.empty()) << describe(e) << ", prefetch " << depth << ": " << problems.front();
        }
}

int64_t bytes_in(const Job& job, Memory memory) { return job.arenas[0].of(memory); }

TEST(Offload, EveryPlacementLeavesTheStateOfNone) {
  for (const Example& plain : offload_examples())
    for (const bool train : {true, false}) {
      const Outcome right = interpret(make_job(plain, train).programs);
      ASSERT_EQ(right.trouble, "");
      for (const OffloadSettings& offload : placements())
        for (const std::set<int>& stays : {std::set<int>{}, std::set<int>{1, 3}}) {
          Example e = plain;
          e.offload = offload;
          e.stays = stays;
          if (e.strategy == Strategy::zero2) e.offload.parameters = Tier::none;
          const Job job = make_job(e, train);
          const auto problems = validate_ranks(rank_lists(job));
          ASSERT_TRUE(problems.empty()) << describe(e) << ": " << problems.front();
          ASSERT_EQ(interpret(job.programs), right) << describe(e);
        }
    }
}

TEST(Offload, WhatLeavesTakesTheWindowOfAFewGroups) {
  Example e{.blocks = 16, .strategy = Strategy::ddp, .shards = 1};
  const Job plain = make_job(e);
  e.offload = {.optimizer = Tier::disk, .master = Tier::disk, .parameters = Tier::disk, .gradients = Tier::disk};
  const Job all = make_job(e);
  EXPECT_GT(bytes_in(all, Memory::disk), bytes_in(plain, Memory::own) * 3 / 4);
  EXPECT_LT(bytes_in(all, Memory::own), bytes_in(plain, Memory::own) / 2);
  e.blocks = 32;  // twice the state, the same window
  const Job twice = make_job(e);
  EXPECT_GT(bytes_in(twice, Memory::disk), bytes_in(all, Memory::disk) * 3 / 2);
  EXPECT_LT(bytes_in(twice, Memory::own), bytes_in(all, Memory::own) * 5 / 4);
}

TEST(Offload, ActivationsThatWaitForBackwardLeave) {
  Example e{.blocks = 16, .strategy = Strategy::zero3, .recompute = true};
  const Job plain = make_job(e);
  e.offload.activations = Tier::cpu;
  const Job away = make_job(e);
  EXPECT_GT(bytes_in(away, Memory::host), 0);
  EXPECT_LT(bytes_in(away, Memory::own), bytes_in(plain, Memory::own));
}

struct DamagedOffload {
  Job job;
  Schedule& list;
  explicit DamagedOffload(const Example& e) : job(make_job(e)), list(job.lists[0]) {}
  std::string problems() {
    std::string all;
    for (const std::string& problem : validate_list(list, job.arenas[0])) all += problem + "\n";
    return all;
  }
  size_t find(ActionKind kind, ValueKind value) const {
    for (size_t i = 0; i < list.actions.size(); ++i)
      if (list.actions[i].kind == kind && list.values[list.actions[i].owner].kind == value) return i;
    return list.actions.size();
  }
};

const Example kOffloaded{.blocks = 4,
                         .strategy = Strategy::zero3,
                         .offload = {.optimizer = Tier::disk, .master = Tier::cpu, .gradients = Tier::cpu}};

TEST(Offload, TheValidatorWantsChangesWrittenBack) {
  DamagedOffload d(kOffloaded);
  ASSERT_EQ(d.problems(), "");
  d.list.actions[d.find(ActionKind::evict, ValueKind::master)].uses = {};
  EXPECT_THAT(d.problems(), HasSubstr("moves something else than a value and its copy"));
}

TEST(Offload, TheValidatorWantsNobodyToReadBeforeAFetchIsComplete) {
  DamagedOffload d(kOffloaded);
  ++d.list.actions[d.find(ActionKind::fetch, ValueKind::optimizer_first)].completes_at;
  EXPECT_THAT(d.problems(), HasSubstr("while its writer"));
}

TEST(Offload, TheValidatorWantsAnEvictToCompleteBeforeTheNextFetch) {
  DamagedOffload d(kOffloaded);
  // The gradient of the first micro-batch comes back for the second.
  const size_t evict = d.find(ActionKind::evict, ValueKind::gradient);
  ASSERT_LT(evict, d.list.actions.size());
  d.list.actions[evict].completes_at = static_cast<int>(d.list.actions.size());
  EXPECT_NE(d.problems(), "");
}

TEST(Offload, TheValidatorWantsActionsToUseCopies) {
  DamagedOffload d(kOffloaded);
  for (Action& a : d.list.actions)
    if (a.kind == ActionKind::step)
      for (Use& u : a.uses) u.value = d.list.original(u.value);
  EXPECT_THAT(d.problems(), HasSubstr("which rests in another memory"));
}

TEST(Offload, TheValidatorWantsEveryTileUpdatedOnce) {
  Example e = kOffloaded;
  e.step_tile = 4096;
  DamagedOffload twice(e), missing(e);
  ASSERT_EQ(twice.problems(), "");
  for (DamagedOffload* d : {&twice, &missing}) {
    std::vector<size_t> steps;
    for (size_t i = 0; i < d->list.actions.size(); ++i)
      if (d->list.actions[i].kind == ActionKind::step && d->list.actions[i].owner == 1) steps.push_back(i);
    ASSERT_EQ(steps.size(), 8u);
    if (d == &twice) d->list.actions[steps[3]].part = 2;
    if (d == &missing) d->list.actions[steps[3]].uses.clear();
  }
  EXPECT_THAT(twice.problems(), HasSubstr("Step(block 0, tile 2) runs again"));
  EXPECT_THAT(missing.problems(),
              HasSubstr("Step(block 0, tile 3) is missing: master(block 0), tile 3 is never updated"));
}

TEST(Offload, TheValidatorWantsTheNormToCountGradientsThatLeft) {
  DamagedOffload d(kOffloaded);
  std::erase_if(d.list.actions, [](const Action& a) { return a.kind == ActionKind::sum_squares && a.owner == 2; });
  EXPECT_NE(d.problems(), "");
}

}  // namespace
}  // namespace trireme::schedule
