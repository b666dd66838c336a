#include "trireme/schedule/step_declaration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "example.h"
#include "trireme/schedule/lifetimes.h"
#include "trireme/schedule/placement.h"

namespace trireme::schedule {
namespace {

int count(const Schedule& s, ActionKind kind) {
  int n = 0;
  for (const Action& a : s.actions) n += a.kind == kind;
  return n;
}

TEST(Passes, AStepRunsEveryUnitForwardAndBackwardOncePerMicroBatch) {
  const Schedule s = training_schedule(example_step(3, 1, false, 2));
  EXPECT_EQ(count(s, ActionKind::forward), 2 * 4);   // embedding and blocks; the head's backward includes it
  EXPECT_EQ(count(s, ActionKind::backward), 2 * 5);
  EXPECT_EQ(count(s, ActionKind::unshard), 0);
  EXPECT_EQ(count(s, ActionKind::step), 5);
}

TEST(Passes, AnIndexFindsTheValuesOfAList) {
  const OffloadSettings offload{.optimizer = Tier::cpu, .gradients = Tier::cpu, .activations = Tier::cpu};
  const Schedule s =
      training_schedule(declare({.blocks = 4, .recompute = true, .offload = offload, .step_tile = 3 * 4096}));
  const ValueIndex index(s);
  for (const Value& v : s.values)
    EXPECT_EQ(index.find(v.kind, v.owner, v.micro_batch, v.instance),
              s.find(v.kind, v.owner, v.micro_batch, v.instance))
        << v.label;
  EXPECT_EQ(index.find(ValueKind::cache, 0, 0), -1);
}

TEST(Passes, LifetimesSayWhatBeginsAndEndsWithEachAction) {
  const OffloadSettings offload{.optimizer = Tier::cpu, .gradients = Tier::cpu, .activations = Tier::cpu};
  Schedule s = training_schedule(declare({.blocks = 4, .recompute = true, .offload = offload}));
  place({&s, 1});
  const Lifetimes lives(s);
  std::vector<int> began(s.values.size()), ended(s.values.size());
  for (int i = 0; i < static_cast<int>(s.actions.size()); ++i) {
    EXPECT_TRUE(std::ranges::is_sorted(lives.beginning(i)) && std::ranges::is_sorted(lives.ending(i)));
    for (const int v : lives.beginning(i)) began[v] += s.values[v].first == i ? 1 : 100;
    for (const int v : lives.ending(i)) ended[v] += s.values[v].last == i ? 1 : 100;
  }
  for (int i = 0; i < static_cast<int>(s.values.size()); ++i) {
    const Value& v = s.values[i];
    EXPECT_EQ(began[i], v.persistent || v.held || v.first < 0 ? 0 : 1) << v.label;
    EXPECT_EQ(ended[i], began[i]) << v.label;
    const bool is_taken_over = std::ranges::any_of(s.values, [&](const Value& other) { return other.takes_over == i; });
    EXPECT_EQ(lives.continues(i), is_taken_over) << v.label;
  }
}

TEST(Passes, FullShardGathersAGroupForForwardAndAgainForBackward) {
  const Schedule s = training_schedule(example_step(3, 2, true, 1));
  std::map<std::string, int> unshards;
  for (const Action& a : s.actions)
    if (a.kind == ActionKind::unshard) ++unshards[s.group_names[a.owner]];
  EXPECT_EQ(unshards["embedding"], 1);  // its backward does not read the table
  EXPECT_EQ(unshards["block 0"], 2);
  EXPECT_EQ(unshards["block 1"], 2);
  EXPECT_EQ(unshards["block 2"], 1);    // the last block: only the head lies between its forward and its backward
  EXPECT_EQ(unshards["head"], 1);       // only backward
}

TEST(Passes, UnitsThatFollowEachOtherAndReadOneGroupShareItsGather) {
  StepDeclaration d = example_step(3, 2, true, 1);
  recompute_everything(d);
  const Schedule s = training_schedule(d);
  EXPECT_EQ(count(s, ActionKind::recompute), 3);
  int block_0 = 0;
  for (const Action& a : s.actions) block_0 += a.kind == ActionKind::unshard && s.group_names[a.owner] == "block 0";
  EXPECT_EQ(block_0, 2);  // forward; recompute and backward together
}

TEST(Passes, DdpReducesWithoutGathering) {
  const Schedule s = training_schedule(example_step(3, 4, false, 3));
  EXPECT_EQ(count(s, ActionKind::unshard), 0);
  EXPECT_EQ(count(s, ActionKind::all_reduce_gradient), 3 * 5);
}

TEST(Passes, PrefetchMovesTheGatherOneUnitEarlierAndCompletesItAtItsReader) {
  StepDeclaration d = example_step(3, 2, true, 1);
  for (int prefetch : {0, 1, 2}) {
    d.prefetch.depth = prefetch;
    const Schedule s = training_schedule(d);
    for (size_t i = 0; i < s.actions.size(); ++i) {
      const Action& a = s.actions[i];
      if (a.kind != ActionKind::unshard) continue;
      const Action& reader = s.actions[a.completes_at];
      ASSERT_TRUE(reader.kind == ActionKind::forward || reader.kind == ActionKind::backward);
      int units_between = 0;
      for (int k = static_cast<int>(i); k < a.completes_at; ++k)
        units_between += s.actions[k].kind == ActionKind::forward || s.actions[k].kind == ActionKind::backward;
      EXPECT_LE(units_between, prefetch);
      const bool at_the_start = i < 4;
      EXPECT_TRUE(units_between == prefetch || at_the_start) << describe(s, a);
    }
  }
}

TEST(Passes, OnlyTheFirstReductionOfAStepStartsAGradientAfresh) {
  const Schedule s = training_schedule(example_step(2, 2, true, 3));
  std::map<int, int> seen;
  for (const Action& a : s.actions)
    if (a.kind == ActionKind::reduce_gradient) {
      EXPECT_EQ(a.accumulate, seen[a.owner]++ > 0);
    }
  for (const auto& [group, times] : seen) EXPECT_EQ(times, 3) << s.group_names[group];
}

TEST(Passes, StepsInsideTheBackwardPassFollowTheLastReductionOfTheirGroup) {
  StepDeclaration d = example_step(3, 2, true, 2);
  d.steps_in_backward = true;
  const Schedule s = training_schedule(d);
  std::map<int, int> complete, squares, step;  // by group
  int last_backward = -1, norm = -1;
  for (int i = 0; i < static_cast<int>(s.actions.size()); ++i) {
    const Action& a = s.actions[i];
    if (a.kind == ActionKind::reduce_gradient) complete[a.owner] = a.completes_at;
    if (a.kind == ActionKind::sum_squares) squares[a.owner] = i;
    if (a.kind == ActionKind::step) step[a.owner] = i;
    if (a.kind == ActionKind::backward) last_backward = i;
    if (a.kind == ActionKind::gather_norm) norm = i;
  }
  EXPECT_EQ(count(s, ActionKind::clip), 0);
  ASSERT_EQ(step.size(), 5u);
  for (const auto& [group, at] : step) {
    EXPECT_EQ(complete[group], squares[group]) << s.group_names[group];
    EXPECT_EQ(squares[group], at - 1) << s.group_names[group];
    EXPECT_LT(at, norm);
  }
  for (int group : {2, 3, 4}) EXPECT_LT(step[group], last_backward);  // of the embedding
}

TEST(Passes, AGradientThatEndsWithItsStepTakesTheMemoryOfAFewGroups) {
  Example e{.blocks = 16, .micro_batches = 1};
  const int64_t late = make_job(e).arenas[0].of(Memory::own);
  e.steps_in_backward = true;
  const int64_t early = make_job(e).arenas[0].of(Memory::own);
  const int64_t gradients = (16 * 16 + 2 * 8) * 4096 / 2 * 4;  // of this shard
  EXPECT_GT(late - early, gradients * 3 / 4);
}

TEST(Passes, ATiedGroupIsReducedOnceAfterItsLastWriter) {
  StepDeclaration d = example_step(2, 2, true, 1);
  d.units.back().groups.push_back(0);  // the head reads the embedding's table too
  const Schedule s = training_schedule(d);
  int reductions = 0;
  bool embedding_done = false;
  for (const Action& a : s.actions) {
    if (a.kind == ActionKind::backward && a.owner == 0) embedding_done = true;
    if (a.kind != ActionKind::reduce_gradient || a.owner != 0) continue;
    ++reductions;
    EXPECT_TRUE(embedding_done);
  }
  EXPECT_EQ(reductions, 1);
}

TEST(Passes, EvaluationHasTheSamePersistentValuesAndNoGradients) {
  const StepDeclaration d = example_step();
  const Schedule train = training_schedule(d), evaluate = evaluation_schedule(d);
  size_t i = 0;
  for (; train.values[i].persistent; ++i) {
    ASSERT_LT(i, evaluate.values.size());
    EXPECT_EQ(train.values[i].label, evaluate.values[i].label);
  }
  EXPECT_FALSE(evaluate.values[i].persistent);
  EXPECT_EQ(count(evaluate, ActionKind::backward) + count(evaluate, ActionKind::reduce_gradient) +
                count(evaluate, ActionKind::step),
            0);
  EXPECT_EQ(count(evaluate, ActionKind::forward), 2 * 5);
}

}  // namespace
}  // namespace trireme::schedule
