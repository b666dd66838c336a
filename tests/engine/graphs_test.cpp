// Which parts of a list become graphs, and when they are made and launched. A processor has no graphs: the ones here
// run what they were made of. cuda_test.cpp has the GPU's.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/engine/step_graphs.h"

namespace trireme::engine {
namespace {

using schedule::Action;
using schedule::ActionKind;
using Mesh = comm::MeshSizes;

TEST(GraphParts, AreTheLongestRowsOfActionsThatOnlyLaunch) {
  using enum ActionKind;
  schedule::Schedule list;
  for (const ActionKind kind : {load_batch, forward, forward, load_batch, forward, load_batch, backward, backward})
    list.actions.push_back({.kind = kind});
  const auto computes = [](const Action& a) { return schedule::is_computation(a.kind); };
  EXPECT_EQ(graph_parts(list, computes), (std::vector<GraphPart>{{1, 3}, {4, 5}, {6, 8}}));
  EXPECT_TRUE(graph_parts(list, [](const Action&) { return false; }).empty());
  EXPECT_EQ(graph_parts(list, [](const Action&) { return true; }), (std::vector<GraphPart>{{0, 8}}));
}

TEST(GraphParts, EndWhereTheHostWaits) {
  using enum ActionKind;
  schedule::Schedule list;
  list.actions = {{.kind = reduce_gradient, .completes_at = 3},
                  {.kind = backward},
                  {.kind = backward},
                  {.kind = backward},
                  {.kind = backward},
                  {.kind = backward}};
  const auto computes = [](const Action& a) { return schedule::is_computation(a.kind); };
  EXPECT_EQ(graph_parts(list, computes), (std::vector<GraphPart>{{1, 3}, {3, 6}}));
  list.actions[0].completes_at = 1;
  EXPECT_EQ(graph_parts(list, computes), (std::vector<GraphPart>{{1, 6}}));
  // What only launches itself is behind the stream's earlier work, and no host waits for it.
  list.actions[0].completes_at = 3;
  EXPECT_EQ(graph_parts(list, [](const Action&) { return true; }), (std::vector<GraphPart>{{0, 6}}));
}

class Replays final : public ops::cuda::GraphMaker {
 public:
  explicit Replays(bool refuses = false) : refuses_(refuses) {}
  std::unique_ptr<ops::cuda::LaunchGraph> capture(const std::function<void()>& launch) override {
    struct Replay final : ops::cuda::LaunchGraph {
      explicit Replay(std::function<void()> kept) : launches(std::move(kept)) {}
      void launch() const override { launches(); }
      std::function<void()> launches;
    };
    if (refuses_) throw Error("[cuda] a launch does not fit into a graph");
    return std::make_unique<Replay>(launch);
  }

 private:
  bool refuses_;
};

TEST(StepGraphs, ChangeNoBitOnAnyMesh) {
  for (const Mesh& mesh : {Mesh{.shard = 1}, Mesh{.shard = 2}, Mesh{.replicate = 2, .shard = 2},
                           Mesh{.pp = 2, .shard = 1}, Mesh{.shard = 1, .tp = 2}})
    for (const bool gives_up : {false, true}) {
      SCOPED_TRACE(testing::Message() << "pp " << mesh.pp << " replicate " << mesh.replicate << " shard " << mesh.shard
                                      << " tp " << mesh.tp << ", gives up " << gives_up);
      Job job{.model = small_llama(), .precision = kMixed, .mesh = mesh, .steps = 4};
      job.strategy = plan::Strategy::full_shard;
      const Outcome plain = run(job);
      EXPECT_EQ(plain.graphs.front(), std::pair(0, 0));
      job.graphs = std::make_shared<Replays>();
      job.gives_up = gives_up;
      const Outcome graphs = run(job);
      expect_equal_bits(graphs, plain);
      for (const auto& [parts, made] : graphs.graphs) {
        EXPECT_GT(parts, 0);
        EXPECT_EQ(made, parts);  // each once
      }
    }
}

TEST(StepGraphs, OneRankHasOneForEachMicroBatch) {
  Job job{.model = small_llama(), .precision = kMixed, .graphs = std::make_shared<Replays>()};
  EXPECT_LE(run(job).graphs.front().first, job.global_micro_batches);
  job.recompute.mode = schedule::Recompute::full;
  job.local_accumulation = true;
  job.ordered = false;
  EXPECT_LE(run(job).graphs.front().first, job.global_micro_batches);
}

// The host chooses a rotary table by the longest text of a micro-batch: another one than the captured step's.
TEST(StepGraphs, HoldNoComputationWhoseRotationsFollowTheTexts) {
  Job job{.model = small_llama(), .precision = kMixed, .mesh = {.shard = 2}};  // its sums of gradients are no launches
  job.graphs = std::make_shared<Replays>();
  job.documents = {.attention = true, .positions = true};
  EXPECT_GT(run(job).graphs.front().first, 0);
  job.documents.lengths = true;
  EXPECT_EQ(run(job).graphs.front().first, 0);
}

TEST(StepGraphs, HostMemoryIsWaitedForBetweenThem) {
  Job job{.model = small_llama(), .precision = kMixed, .mesh = {.shard = 2}, .steps = 4};
  job.strategy = plan::Strategy::full_shard;
  job.offload = {
      .parameters = schedule::Tier::cpu, .gradients = schedule::Tier::cpu, .activations = schedule::Tier::cpu};
  const Outcome plain = run(job);
  job.graphs = std::make_shared<Replays>();
  const Outcome graphs = run(job);
  expect_equal_bits(graphs, plain);
  for (const auto& [parts, made] : graphs.graphs) EXPECT_GT(made, 0);
}

// A graph holds the number that divides the loss: with another one it must not be launched.
TEST(StepGraphs, AreLaunchedWithTheNumbersThatTheyWereMadeWith) {
  StepGraphs graphs(std::make_shared<Replays>(), {{2, 5}});
  EXPECT_EQ(graphs.end_of(2), 5);
  EXPECT_EQ(graphs.end_of(3), 0);
  int launched = 0;
  const auto run = [&](double scale, int batches) {
    graphs.run(2, {.loss_scale = scale, .used_micro_batches = batches}, [&, scale] { launched += int(scale); });
    return graphs.captured();
  };
  EXPECT_EQ(run(1, 4), 0);
  EXPECT_EQ(run(10, 4), 0);
  EXPECT_EQ(run(10, 4), 1);
  EXPECT_EQ(run(10, 4), 1);
  EXPECT_EQ(run(10, 3), 1);
  EXPECT_EQ(run(1, 3), 1);
  EXPECT_EQ(run(1, 3), 2);
  EXPECT_EQ(launched, 43);
}

TEST(StepGraphs, WhatCannotBeAGraphRunsWithout) {
  Job job{.model = small_llama(), .precision = kMixed, .steps = 4};
  const Outcome plain = run(job);
  job.graphs = std::make_shared<Replays>(/*refuses=*/true);
  testing::internal::CaptureStderr();
  const Outcome without = run(job);
  const std::string told = testing::internal::GetCapturedStderr();
  expect_equal_bits(without, plain);
  EXPECT_EQ(without.graphs.front().second, 0);
  const std::string sentence = "a part of the step cannot be a CUDA graph";
  ASSERT_NE(told.find(sentence), std::string::npos) << told;
  EXPECT_EQ(told.find(sentence, told.find(sentence) + 1), std::string::npos) << told;
}

}  // namespace
}  // namespace trireme::engine
