#include "trireme/schedule/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "example.h"

namespace trireme::schedule {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using Strategy = Example::Strategy;

struct Placed {
  std::vector<Schedule> lists;
  Arena arena;
};

Placed placed(int ranks = 2, bool shard = true) {
  Placed p;
  p.lists = {training_schedule(example_step(3, ranks, shard, 2))};
  p.arena = place(p.lists);
  return p;
}

int find_action(const Schedule& s, ActionKind kind, int nth = 0) {
  for (size_t i = 0; i < s.actions.size(); ++i)
    if (s.actions[i].kind == kind && nth-- == 0) return static_cast<int>(i);
  return -1;
}

void erase_action(Schedule& s, int index) {
  s.actions.erase(s.actions.begin() + index);
  for (Action& a : s.actions)
    if (a.completes_at > index) --a.completes_at;
}

// A job in which rank 1 has a list of its own to damage.
struct Damaged {
  Job job;
  Schedule list;
  explicit Damaged(const Example& e) : job(make_job(e)), list(job.lists[job.stage_of(1)]) {}
  std::vector<std::string> verdict() {
    auto ranks = rank_lists(job);
    ranks[1].program.schedule = &list;
    return validate_ranks(ranks);
  }
};

TEST(Validate, EveryStrategyOfTheBuilderIsRight) {
  for (int ranks : {1, 2, 4})
    for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3})
      for (int prefetch : {0, 1, 3})
        for (int lag : {0, 1, 2})
          for (bool train : {true, false}) {
            const Job job = make_job({.blocks = 4,
                                      .strategy = strategy,
                                      .shards = ranks,
                                      .micro_batches = 3,
                                      .prefetch = {.depth = prefetch},
                                      .reduce_lag = lag},
                                     train);
            EXPECT_THAT(validate_ranks(rank_lists(job)), IsEmpty()) << describe(job.example);
          }
}

TEST(Validate, WhatRanksShareLiesAtTheSamePlaces) {
  for (const ValueKind kind : {ValueKind::parameters, ValueKind::gradient_slot}) {
    Damaged d({.blocks = 2});
    const bool is_slot = kind == ValueKind::gradient_slot;
    Value& moved = d.list.values[static_cast<size_t>(d.list.find(kind, 1, is_slot ? 0 : -1))];
    moved.offset += kValueAlignment;
    EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("rank 0 has " + moved.label), HasSubstr("rank 1 has"),
                                            HasSubstr("they share this memory"))));
  }
}

TEST(Validate, EveryPipelineIsRight) {
  for (const PipelineSchedule& s : pipeline_schedules())
    for (int ranks : {2, 3, 4})
      for (bool tied : {false, true})
        for (Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3})
          for (bool train : {true, false}) {
            const Job job = make_job({.blocks = 2 * ranks + 1,
                                      .strategy = strategy,
                                      .micro_batches = 2 * ranks,
                                      .recompute = tied,
                                      .pipeline = std::string(s.name),
                                      .stage_ranks = ranks,
                                      .tied_to_head = tied ? 0 : -1},
                                     train);
            EXPECT_THAT(validate_ranks(rank_lists(job)), IsEmpty()) << describe(job.example);
          }
}

TEST(Validate, FrozenGroupsAreRightUnderEveryStrategyAndPipeline) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3})
    for (const char* pipeline : {"", "1f1b", "zb_h1", "zb_v"})
      for (const std::set<int>& frozen : {std::set{0}, std::set{1, 2}, std::set{2, 5}, std::set{0, 1, 2, 3, 4}}) {
        const Job job = make_job({.blocks = 4,
                                  .strategy = strategy,
                                  .micro_batches = 4,
                                  .pipeline = pipeline,
                                  .stage_ranks = *pipeline ? 2 : 1,
                                  .frozen = frozen});
        EXPECT_THAT(validate_ranks(rank_lists(job)), IsEmpty()) << describe(job.example);
        for (const Schedule& s : job.lists)
          for (const Value& v : s.values)
            if (frozen.contains(v.owner)) EXPECT_NE(v.cause, Cause::gradients) << v.label;
      }
}

TEST(Validate, NamesWhatTrainsAFrozenGroup) {
  Damaged d({.blocks = 2, .strategy = Strategy::zero2, .frozen = {1}});
  const Schedule right = d.list;
  d.list.frozen_groups = {1, 2};
  EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("gradient(block 1)"), HasSubstr("block 1 is frozen"))));
  EXPECT_THAT(d.verdict(), Contains(HasSubstr("Step(block 1) trains a group that is frozen")));
  d.list = right;
  d.list.frozen_groups.clear();
  EXPECT_THAT(d.verdict(), Contains(HasSubstr("leaves out the gradient of block 0")));
}

TEST(Validate, NamesTwoValuesThatShareBytes) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  const int a = s.find(ValueKind::tokens, -1, 0), b = s.find(ValueKind::targets, -1, 0);
  s.values[a].offset = s.values[b].offset;
  EXPECT_THAT(validate_list(s, p.arena),
              Contains(AllOf(HasSubstr("share bytes"), HasSubstr("tokens(mb 0)"), HasSubstr("targets(mb 0)"))));
}

TEST(Validate, NamesAValueOutsideItsRegion) {
  Placed p = placed();
  --p.arena.bytes[0];
  EXPECT_THAT(validate_list(p.lists[0], p.arena), Contains(HasSubstr("outside its region")));
}

TEST(Validate, NamesAReadBeforeItsWrite) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  std::swap(s.actions[find_action(s, ActionKind::load_batch)], s.actions[find_action(s, ActionKind::forward)]);
  EXPECT_THAT(validate_list(s, p.arena),
              Contains(AllOf(HasSubstr("Forward(embedding, mb 0)"), HasSubstr("before anything wrote it"))));
}

TEST(Validate, NamesAGatherThatIsReadWhileUnderWay) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  s.actions[find_action(s, ActionKind::unshard)].completes_at += 2;
  p.arena = place(p.lists);
  EXPECT_THAT(validate_list(s, p.arena), Contains(AllOf(HasSubstr("Unshard"), HasSubstr("still under way"))));
}

TEST(Validate, NamesAGradientThatIsNeverReducedOrTwice) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  const int first = find_action(s, ActionKind::reduce_gradient);
  Schedule missing = s;
  erase_action(missing, first);
  EXPECT_THAT(validate_list(missing, p.arena),
              Contains(AllOf(HasSubstr(describe(s, s.actions[first])), HasSubstr("never reduced"))));
  Schedule twice = s;
  twice.actions[find_action(s, ActionKind::reduce_gradient, 1)] = s.actions[first];
  EXPECT_THAT(validate_list(twice, p.arena), Contains(AllOf(HasSubstr("again"), HasSubstr("the rule is once"))));
}

TEST(Validate, NamesASumThatStartsAfreshInTheMiddle) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  for (Action& a : s.actions)
    if (a.kind == ActionKind::reduce_gradient && a.accumulate) {
      a.accumulate = false;
      break;
    }
  EXPECT_THAT(validate_list(s, p.arena), Contains(HasSubstr("overwrites the step's gradient")));
}

// Where backward adds to the rank's own sum: each micro-batch once, begun once, reduced once behind the last.
TEST(Validate, NamesAMicroBatchThatIsNotInTheRanksOwnSumOnce) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    const Example example{.blocks = 2, .strategy = strategy, .micro_batches = 3, .ordered = false, .local = true};
    const auto gradient_of = [](Schedule& s, Action& a) -> Use& {
      return *std::find_if(a.uses.begin(), a.uses.end(), [&](const Use& u) {
        return s.values[u.value].kind == ValueKind::local_gradient || s.values[u.value].kind == ValueKind::gradient;
      });
    };
    const Damaged right(example);
    const int first = find_action(right.list, ActionKind::backward, 1),
              later = find_action(right.list, ActionKind::backward, 5);
    ASSERT_EQ(right.list.actions[first].owner, right.list.actions[later].owner);
    Damaged d = right;
    EXPECT_THAT(d.verdict(), IsEmpty());
    Action& a = d.list.actions[later];
    const Use sum = gradient_of(d.list, a);
    std::erase_if(a.uses, [&](const Use& u) { return u.value == sum.value; });
    EXPECT_THAT(d.verdict(),
                Contains(AllOf(HasSubstr("Backward(block 1, mb 1)"), HasSubstr("leaves out the gradient"))));
    d = right;
    d.list.actions[later].uses.push_back(sum);
    EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("Backward(block 1, mb 1)"), HasSubstr("twice"))));
    d = right;
    gradient_of(d.list, d.list.actions[later]).access = Access::write;
    EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("Backward(block 1, mb 1) overwrites"), HasSubstr("(block 1)"))));
    d = right;
    gradient_of(d.list, d.list.actions[first]).access = Access::accumulate;
    EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("Backward(block 1, mb 0)"), HasSubstr("nothing has begun"))));
    d = right;
    gradient_of(d.list, d.list.actions[later]).value =
        gradient_of(d.list, d.list.actions[find_action(d.list, ActionKind::backward, 4)]).value;
    EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("Backward(block 1, mb 1)"), HasSubstr("does not belong"))));
    d = right;
    const ActionKind kind = strategy == Strategy::ddp ? ActionKind::all_reduce_gradient : ActionKind::reduce_gradient;
    const int reduction = find_action(d.list, kind);
    Action early = d.list.actions[reduction];
    erase_action(d.list, reduction);
    d.list.actions.insert(d.list.actions.begin() + later, early);
    for (Action& other : d.list.actions)
      if (other.completes_at > later) ++other.completes_at;
    EXPECT_THAT(d.verdict(), Contains(HasSubstr("adds to a gradient that was reduced by")));
  }
}

TEST(Validate, NamesAStepBeforeClip) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  std::swap(s.actions[find_action(s, ActionKind::clip)], s.actions[find_action(s, ActionKind::step)]);
  EXPECT_THAT(validate_list(s, p.arena), Contains(AllOf(HasSubstr("Clip stands after"), HasSubstr("Step(embedding)"))));
}

TEST(Validate, StepsInsideTheBackwardPassAreRightUnderEveryStrategyAndPipeline) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3})
    for (const char* pipeline : {"", "1f1b", "zb_h1", "zb_v"})
      for (int micro_batches : {1, 4})
        for (int lag : {0, 1, 3})
          for (bool train : {true, false}) {
            if (*pipeline && micro_batches == 1) continue;
            const Job job = make_job({.blocks = 4,
                                      .strategy = strategy,
                                      .replicas = strategy >= Strategy::zero2 ? 2 : 1,
                                      .micro_batches = micro_batches,
                                      .pipeline = pipeline,
                                      .stage_ranks = *pipeline ? 2 : 1,
                                      .tied_to_head = lag == 1 ? 0 : -1,
                                      .frozen = lag == 3 ? std::set<int>{2} : std::set<int>{},
                                      .reduce_lag = lag,
                                      .steps_in_backward = true},
                                     train);
            EXPECT_THAT(validate_ranks(rank_lists(job)), IsEmpty()) << describe(job.example);
          }
}

TEST(Validate, NamesAStepInsideTheBackwardPassThatIsTooEarlyOrUncounted) {
  for (Strategy strategy : {Strategy::zero2, Strategy::zero3}) {
    Damaged right({.blocks = 3, .strategy = strategy, .steps_in_backward = true}), d = right;
    ASSERT_THAT(d.verdict(), IsEmpty());
    const int step = find_action(d.list, ActionKind::step, 1);  // of the last block
    ASSERT_EQ(d.list.actions[step].owner, 3);
    const int reduction = find_action(d.list, ActionKind::reduce_gradient, 6);
    ASSERT_EQ(d.list.actions[reduction].owner, 3);
    // Before the pass that reads its weights, and before the reduction that tells that no rank reads them any more.
    int backward = reduction - 1;
    while (d.list.actions[backward].kind != ActionKind::backward) --backward;
    for (const int to : {backward, reduction}) {
      d = right;
      const Action early = d.list.actions[step];
      erase_action(d.list, step);
      for (Action& a : d.list.actions)
        if (a.completes_at >= to) ++a.completes_at;
      d.list.actions.insert(d.list.actions.begin() + to, early);
      EXPECT_THAT(d.verdict(),
                  Contains(AllOf(HasSubstr("ReduceGradient(block 2, mb 1) stands after"), HasSubstr("Step(block 2)"))));
    }
    d = right;
    erase_action(d.list, find_action(d.list, ActionKind::sum_squares, 1));
    EXPECT_THAT(d.verdict(), Contains(HasSubstr("SumSquares(block 2) is missing: the norm leaves its gradient out")));
    d = right;
    std::swap(d.list.actions[step], d.list.actions[step - 1]);
    EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("SumSquares(block 2) stands after"), HasSubstr("Step(block 2)"),
                                            HasSubstr("squares, step and norm"))));
  }
  // Where all Steps wait for the norm, the clip is needed.
  Damaged late({.blocks = 3, .strategy = Strategy::zero3});
  erase_action(late.list, find_action(late.list, ActionKind::clip));
  EXPECT_THAT(late.verdict(), Contains(HasSubstr("Clip is missing: the gradient is never scaled")));
}

TEST(Validate, NamesAValueTakenOverThatIsNotConsumed) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  const auto v = std::find_if(s.values.begin(), s.values.end(), [](const Value& v) { return v.takes_over >= 0; });
  v->takes_over = s.find(ValueKind::tokens, -1, 0);
  EXPECT_THAT(validate_list(s, p.arena), Contains(AllOf(HasSubstr(v->label), HasSubstr("does not consume"))));
}

TEST(Validate, NamesComputationThatWouldCompleteLater) {
  Placed p = placed();
  Schedule& s = p.lists[0];
  const int i = find_action(s, ActionKind::forward);
  s.actions[i].completes_at = i + 2;
  EXPECT_THAT(validate_list(s, p.arena), Contains(HasSubstr("only communication")));
}

TEST(Validate, NamesTheActionsWhereTwoRanksPartInTheirGathers) {
  Damaged d({.blocks = 3, .strategy = Strategy::zero3});
  const int a = find_action(d.list, ActionKind::unshard, 0), b = find_action(d.list, ActionKind::unshard, 2);
  std::swap(d.list.actions[a].owner, d.list.actions[b].owner);
  std::swap(d.list.actions[a].uses, d.list.actions[b].uses);
  const auto problems = d.verdict();
  EXPECT_THAT(problems, Contains(AllOf(HasSubstr("rank 0's #"), HasSubstr("rank 1's #"), HasSubstr("Unshard"),
                                       HasSubstr("queue gather"))));
  EXPECT_THAT(problems, Contains(HasSubstr("wait for each other")));
}

TEST(Validate, NamesTwoReductionsInAnotherOrderOnAnotherRank) {
  Damaged d({.strategy = Strategy::ddp, .micro_batches = 1, .reduce_lag = 3});
  const int a = find_action(d.list, ActionKind::all_reduce_gradient, 1);
  const int b = find_action(d.list, ActionKind::all_reduce_gradient, 2);
  Action moved = d.list.actions[a];
  d.list.actions.erase(d.list.actions.begin() + a);
  d.list.actions.insert(d.list.actions.begin() + b, std::move(moved));
  EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("AllReduceGradient(block 2, mb 0)"),
                                          HasSubstr("AllReduceGradient(block 1, mb 0)"), HasSubstr("queue reduce"))));
}

TEST(Validate, ARankThatLeavesOutACollectiveIsAStall) {
  const Job job = make_job({.blocks = 3, .strategy = Strategy::zero3});
  Schedule list = job.lists[0];
  list.actions[find_action(list, ActionKind::reduce_gradient)].queue = {};
  auto programs = job.programs;
  programs[1].schedule = &list;
  EXPECT_TRUE(run_queue_model(programs).has_value());
}

TEST(Validate, NamesAMessageThatNobodyReceives) {
  Damaged d({.blocks = 2, .shards = 1, .pipeline = "1f1b", .stage_ranks = 2});
  erase_action(d.list, find_action(d.list, ActionKind::receive, 1));
  EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("rank 0's #"), HasSubstr("Send(block 0, mb 1)"),
                                          HasSubstr("has no partner on rank 1"))));
}

TEST(Validate, NamesAMessageThatIsSentTwice) {
  Damaged d({.blocks = 2, .shards = 1, .pipeline = "1f1b", .stage_ranks = 2});
  const int i = find_action(d.list, ActionKind::send);
  const Action again = d.list.actions[i];
  for (Action& a : d.list.actions)
    if (a.completes_at > i) ++a.completes_at;
  d.list.actions.insert(d.list.actions.begin() + i, again);
  EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("rank 1's #"), HasSubstr("Send(gradient block 0, mb 0)"),
                                          HasSubstr("messages from 1 to 0"))));
}

TEST(Validate, NamesAMessageOfOtherBytes) {
  Damaged d({.blocks = 2, .shards = 1, .pipeline = "1f1b", .stage_ranks = 2});
  d.list.actions[find_action(d.list, ActionKind::receive)].bytes += 64;
  EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("Receive(block 0, mb 0)"), HasSubstr("with the same bytes"))));
}

TEST(Validate, NamesAPassThatIsMissingOrRunsTwice) {
  Damaged d({.blocks = 2, .shards = 1, .pipeline = "zb_h1", .stage_ranks = 2});
  const int i = find_action(d.list, ActionKind::backward_weight);
  const Schedule whole = d.list;
  erase_action(d.list, i);
  EXPECT_THAT(d.verdict(),
              Contains(AllOf(HasSubstr("rank 1: "), HasSubstr("BackwardWeight(block 1, mb 0) is missing"))));
  d.list = whole;
  d.list.actions[find_action(d.list, ActionKind::backward_weight, 1)] = d.list.actions[i];
  EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("BackwardWeight(block 1, mb 0)"), HasSubstr("runs again"))));
}

TEST(Validate, NamesAUnitThatNoRankRuns) {
  Damaged d({.blocks = 2, .shards = 1, .pipeline = "1f1b", .stage_ranks = 2});
  d.list.unit_names.push_back("tail");
  d.job.lists[0].unit_names.push_back("tail");
  EXPECT_THAT(d.verdict(), Contains(AllOf(HasSubstr("Forward(tail)"), HasSubstr("no rank of the pipeline"))));
}

// Two ranks that each send, compute into the bytes they sent, and then receive: neither's message goes anywhere before
// the other receives, and neither receives before its own message has gone.
TEST(Validate, TwoRanksThatSendBeforeTheyReceiveAreTheDeadlockTheyAre) {
  std::vector<Schedule> lists(2);
  for (int r = 0; r < 2; ++r) {
    Schedule& s = lists[r];
    s.unit_names = {"a", "b"};
    s.values = {{.kind = ValueKind::boundary, .owner = r, .micro_batch = 0, .label = "sent", .bytes = 64},
                {.kind = ValueKind::boundary, .owner = 1 - r, .micro_batch = 0, .label = "received", .bytes = 64}};
    const auto message = [&](ActionKind kind, QueueKind queue, int unit, int completes_at) {
      return Action{
          .kind = kind, .owner = unit, .micro_batch = 0, .queue = {queue, 1 - r}, .completes_at = completes_at};
    };
    s.actions = {Action{.kind = ActionKind::forward, .owner = r, .micro_batch = 0},
                 message(ActionKind::send, QueueKind::send, r, 2),
                 Action{.kind = ActionKind::forward, .owner = r, .micro_batch = 1},
                 message(ActionKind::receive, QueueKind::receive, 1 - r, -1)};
  }
  std::vector<RankProgram> programs;
  for (const Schedule& s : lists) programs.push_back({.schedule = &s, .members = {}, .stages = {0, 1}});
  const auto stall = run_queue_model(programs);
  ASSERT_TRUE(stall.has_value());
  EXPECT_THAT(stall->lines, Contains("rank 0 cannot start #2 Forward(a, mb 1) before #1 Send(a, mb 0) completes"));
  EXPECT_THAT(stall->lines, Contains("rank 1 cannot start #2 Forward(b, mb 1) before #1 Send(b, mb 0) completes"));
  // Received first, or sent until after the receive, the same lists run.
  for (Schedule& s : lists) s.actions[1].completes_at = 4;
  EXPECT_FALSE(run_queue_model(programs).has_value());
}

}  // namespace
}  // namespace trireme::schedule
