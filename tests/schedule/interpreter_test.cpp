#include "interpreter.h"

#include <gtest/gtest.h>

#include "example.h"

namespace trireme::schedule {
namespace {

using Strategy = Example::Strategy;

TEST(Interpreter, BytesAreOnlyWhatWasWrittenWhileNothingTouchesThem) {
  SymbolicBytes bytes;
  bytes.write(64, 128, 7);
  EXPECT_EQ(bytes.read(64, 128), 7u);
  EXPECT_NE(bytes.read(64, 64), 7u);
  bytes.write(192, 64, 8);
  EXPECT_EQ(bytes.read(64, 128), 7u);
  bytes.write(128, 64, 9);
  EXPECT_NE(bytes.read(64, 128), 7u);
  EXPECT_EQ(bytes.read(128, 64), 9u);
  EXPECT_EQ(bytes.read(192, 64), 8u);
  bytes.write(64, 128, 7);
  EXPECT_EQ(bytes.read(64, 128), 7u);
}

TEST(Interpreter, RunsEveryExampleWithoutTrouble) {
  for (Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3})
    for (const PipelineSchedule& s : pipeline_schedules())
      for (int ranks : {1, 2, 4}) {
        const Job job = make_job({.blocks = 7,
                                  .strategy = strategy,
                                  .micro_batches = 8,
                                  .pipeline = std::string(s.name),
                                  .stage_ranks = ranks,
                                  .tied_to_head = 0});
        EXPECT_EQ(interpret(job.programs).trouble, "") << describe(job.example);
      }
}

// Bytes, queues and lists differ; what is computed does not.
TEST(Interpreter, PrefetchAndLagChangeNoResult) {
  const Job job = make_job({.strategy = Strategy::zero3, .micro_batches = 3});
  const Outcome plain = interpret(job.programs);
  for (int depth : {0, 2, 3})
    for (int lag : {0, 2, 4}) {
      const Job other =
          make_job({.strategy = Strategy::zero3, .micro_batches = 3, .prefetch = {.depth = depth}, .reduce_lag = lag});
      EXPECT_EQ(interpret(other.programs), plain) << "depth " << depth << ", lag " << lag;
    }
}

TEST(Interpreter, SeesAValueThatIsOverwrittenTooEarly) {
  const Job job = make_job({.strategy = Strategy::zero3});
  const Outcome right = interpret(job.programs);
  Schedule wrong = job.lists[0];
  const int early = wrong.find(ValueKind::boundary, 0, 0), late = wrong.find(ValueKind::boundary, 1, 0);
  wrong.values[early].offset = wrong.values[late].offset;
  auto programs = job.programs;
  programs[1].schedule = &wrong;
  EXPECT_NE(interpret(programs), right);
}

TEST(Interpreter, SeesAGatherThatIsReadBeforeItIsThere) {
  const Job job = make_job({.strategy = Strategy::zero3});
  const Outcome right = interpret(job.programs);
  Schedule wrong = job.lists[0];
  for (Action& a : wrong.actions)
    if (a.kind == ActionKind::unshard) {
      ++a.completes_at;
      break;
    }
  auto programs = job.programs;
  programs[0].schedule = &wrong;
  EXPECT_NE(interpret(programs), right);
}

}  // namespace
}  // namespace trireme::schedule
