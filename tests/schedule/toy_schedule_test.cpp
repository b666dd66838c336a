// The page on adding strategies (docs/adding-a-strategy.md): what it prints is the code that is compiled here
// (tests/tools compares them), and the schedule, the row and the pass that it adds go through everything that built-in
// ones go through.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "example.h"
#include "trireme/base/error.h"
#include "trireme/schedule/draft.h"
#include "trireme/schedule/pipelines/pipelines.h"
#include "trireme/schedule/validate.h"

namespace trireme::schedule {
namespace pipelines {
PipelineSchedule one_at_a_time();
}

namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using Strategy = Example::Strategy;

// Every list of the example again, from other cells. The 1f1b that stands in the example cuts the model the same way.
Job with_schedule(const Example& e, const PipelineSchedule& toy, int micro_batches) {
  Job job = make_job(e);
  const PipelineTiming timing = time_pipeline(toy, e.stage_ranks, toy.default_chunks, micro_batches);
  for (int p = 0; p < e.stage_ranks; ++p) {
    job.lists[p] = make_list(List::train, declare(e, p), timing);
    job.arenas[p] = place({&job.lists[p], 1});
  }
  return job;
}

Job with_schedule(const Example& e, const PipelineSchedule& toy) { return with_schedule(e, toy, e.micro_batches); }

std::vector<std::string> verdict(const Job& job) {
  std::vector<RankList> ranks;
  for (int r = 0; r < job.example.world_size(); ++r) ranks.push_back({job.programs[r], &job.arenas[job.stage_of(r)]});
  return validate_ranks(ranks);
}

TEST(ToySchedule, IdlesAsItsFileSays) {
  for (int p : {2, 3, 4, 8})
    for (int m : {1, 2, 7})
      EXPECT_NEAR(time_pipeline(pipelines::one_at_a_time(), p, 1, m).idle_fraction(), double(p - 1) / p, 1e-12)
          << p << " ranks, " << m << " micro-batches";
}

TEST(ToySchedule, RunsUnderEveryStrategy) {
  for (int p : {2, 3})
    for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3})
      for (int shards : {1, 2})
        for (int tied : {-1, 0}) {
          const Example e{.blocks = 4,
                          .strategy = strategy,
                          .shards = shards,
                          .micro_batches = 3,
                          .recompute = true,
                          .pipeline = "1f1b",
                          .stage_ranks = p,
                          .tied_to_head = tied};
          const Job job = with_schedule(e, pipelines::one_at_a_time());
          EXPECT_THAT(verdict(job), IsEmpty()) << describe(e);
          const Simulation run = simulate(job.programs, Rates{.compute_scale = 1});
          EXPECT_FALSE(run.stall) << describe(e);
          EXPECT_GT(run.length(), 0);
        }
}

TEST(ToySchedule, HoldsTheActivationsOfOneMicroBatch) {
  const Example e{.blocks = 4, .shards = 1, .micro_batches = 4, .pipeline = "1f1b", .stage_ranks = 2};
  const auto most_held = [](const Schedule& s) {
    size_t most = 0;
    for (int i = 0; i < static_cast<int>(s.actions.size()); ++i) {
      std::set<int> held;
      for (const Value& v : s.values)
        if (v.kind == ValueKind::saved && v.first <= i && i <= v.last) held.insert(v.micro_batch);
      most = std::max(most, held.size());
    }
    return most;
  };
  const Job toy = with_schedule(e, pipelines::one_at_a_time()), other = make_job(e);
  EXPECT_EQ(most_held(toy.lists[0]), 1U);
  EXPECT_EQ(most_held(other.lists[0]), 2U);
  EXPECT_LT(toy.arenas[0].total(), other.arenas[0].total());
}

TEST(ToySchedule, MistakesInItsCellsAreNamed) {
  PipelineSchedule backwards = pipelines::one_at_a_time();
  backwards.cells = [](const PipelineShape&) {
    return std::vector<Cell>{{Cell::Kind::backward, 0, 0}, {Cell::Kind::forward, 0, 0}};
  };
  EXPECT_THROW(time_pipeline(backwards, 2, 1, 1), InternalError);

  PipelineSchedule forgetful = pipelines::one_at_a_time();
  forgetful.cells = [](const PipelineShape& s) {
    std::vector<Cell> out;
    for (int k = 0; k < s.micro_batches; ++k) out.push_back({Cell::Kind::forward, 0, k});
    for (int k = 1; k < s.micro_batches; ++k) out.push_back({Cell::Kind::backward, 0, k});
    return out;
  };
  const Example e{.blocks = 4, .shards = 1, .micro_batches = 3, .pipeline = "1f1b", .stage_ranks = 2};
  EXPECT_THAT(verdict(with_schedule(e, forgetful)), Contains(AllOf(HasSubstr("Backward"), HasSubstr("mb 0"))));
}

// A strategy that is not among the built-in ones: whole gradients on every rank, weights gathered before each use.
StepDeclaration with_row(const Sharding& row) {
  StepDeclaration d = declare({.blocks = 3, .strategy = Strategy::zero3, .shards = 2, .micro_batches = 2});
  d.sharding = row;
  return d;
}

const Sharding kRow = {.gather = Gather::each_use, .whole_gradients = true, .several_ranks = true};

TEST(ToyRow, IsAllThatAStrategyNeeds) {
  const StepDeclaration d = with_row(kRow);
  Job job = make_job({.blocks = 3, .strategy = Strategy::zero3, .shards = 2, .micro_batches = 2});
  const int64_t sharded = job.arenas[0].total();
  job.lists[0] = training_schedule(d);
  job.arenas[0] = place({&job.lists[0], 1});
  EXPECT_THAT(verdict(job), IsEmpty());
  const auto count = [&](ActionKind kind) {
    return std::count_if(job.lists[0].actions.begin(), job.lists[0].actions.end(),
                         [&](const Action& a) { return a.kind == kind; });
  };
  EXPECT_GT(count(ActionKind::unshard), 5);  // more than one a group
  EXPECT_EQ(count(ActionKind::all_reduce_gradient), 2 * 5);
  EXPECT_EQ(count(ActionKind::reduce_gradient), 0);
  EXPECT_GT(job.arenas[0].total(), sharded);
}

/// Nothing overlaps: every message and collective has ended before the next action starts.
void forbid_overlap(DraftList& list) {
  for (Draft& d : list.drafts) d.completes_before = -1;
}

// As in passes.cpp, with one pass more.
Schedule without_overlap(const StepDeclaration& step, const PipelineTiming& timing) {
  DraftList list = lay_down_units(step, timing.cells[step.pipeline_rank], true);
  insert_recomputation(list, step);
  insert_messages(list, step, timing);
  insert_unshards(list, step);
  insert_reductions(list, step);
  append_tail(list, step, true);
  forbid_overlap(list);
  return attach_values(list, step);
}

TEST(ToyPass, MakesListsThatAreRight) {
  const Example e{.blocks = 4, .strategy = Strategy::zero3, .shards = 2, .micro_batches = 2};
  Job job = make_job(e);
  const double overlapped = simulate(job.programs, Rates{.compute_scale = 1, .seconds_per_byte = 1e-5}).length();
  job.lists[0] = without_overlap(declare(e), timing_of(e));
  job.arenas[0] = place({&job.lists[0], 1});
  EXPECT_THAT(verdict(job), IsEmpty());
  EXPECT_GT(simulate(job.programs, Rates{.compute_scale = 1, .seconds_per_byte = 1e-5}).length(), overlapped);
}

TEST(ToyPass, ThatWouldHangIsRefusedByTheQueueModel) {
  const Example e{.blocks = 4, .shards = 1, .micro_batches = 2, .pipeline = "1f1b", .stage_ranks = 2};
  Job job = make_job(e);
  ASSERT_FALSE(run_queue_model(job.programs));
  for (int p = 0; p < 2; ++p) job.lists[p] = without_overlap(declare(e, p), timing_of(e));
  const auto stall = run_queue_model(job.programs);
  ASSERT_TRUE(stall);
  EXPECT_THAT(stall->lines, Contains(HasSubstr("rank 0 waits in queue")));
}

}  // namespace
}  // namespace trireme::schedule
