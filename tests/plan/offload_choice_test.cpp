#include "trireme/plan/offload_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "trireme/plan/stage_plans.h"
#include "trireme/plan/step_layouts.h"

namespace trireme::plan {
namespace {

using schedule::OffloadSettings;
using schedule::Tier;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const model::Precision kHalfUnits{at::kBFloat16, at::kFloat};

StepRequest offload_request(comm::MeshSizes sizes, int ranks, Strategy strategy) {
  return {.precision = kHalfUnits,
          .shape = {2, 64},
          .mesh = {sizes, ranks},
          .strategy = strategy,
          .num_micro_batches = 4,
          .optimizer = {.rule = optim::Rule::adamw, .lr = 0, .step = 0}};
}

model::Model llama_of(const StepRequest& r) {
  return model::build_model(model::catalogue_config("llama-5m"), r.precision, r.parallel());
}

TEST(OffloadChoice, ATableOfASmallModelIsInMiB) {
  constexpr int64_t kMiB = int64_t{1} << 20;
  const std::string small = render_rungs({{.own = 5 * kMiB / 2, .host = kMiB}}, 3 * kMiB);
  EXPECT_THAT(small, testing::AllOf(HasSubstr("own MiB"), HasSubstr("2.50       1.00       0.00  fits")));
  EXPECT_THAT(render_rungs({{.own = 3072 * kMiB}}, 3072 * kMiB),
              testing::AllOf(HasSubstr("own GiB   host GiB   disk GiB"), HasSubstr("3.00       0.00")));
}

// The last stage or the last shard may need the most. Every rank is planned to see it.
TEST(OffloadChoice, TheFullestOfAllRanksCounts) {
  const OffloadSettings offload{.optimizer = Tier::cpu, .gradients = Tier::disk};
  for (const StepRequest& request :
       {offload_request({.pp = 2, .shard = 3}, 6, Strategy::full_shard),
        offload_request({.replicate = 2, .shard = 3, .tp = 2}, 12, Strategy::hybrid_shard)}) {
    const UnlikeRanks ranks(llama_of, request);
    const OffloadRung most = ranks.measure(offload);
    std::vector<int64_t> own, host, disk;
    for (int rank = 0; rank < request.mesh.world_size(); ++rank) {
      StepRequest r = request.of_rank(rank);
      r.offload = offload;
      const model::Model model = llama_of(r);
      const StepPlan plan = make_step_plan(model, r);
      own.push_back(plan.arena.total());
      host.push_back(plan.arena.of(schedule::Memory::host));
      disk.push_back(plan.arena.of(schedule::Memory::disk));
    }
    EXPECT_EQ(most.own, *std::ranges::max_element(own));
    EXPECT_EQ(most.host, *std::ranges::max_element(host));
    EXPECT_EQ(most.disk, *std::ranges::max_element(disk));
    EXPECT_GT(most.own, own[0]);
    EXPECT_EQ(ranks.request().rank, 0);
  }
  // Groups of three sizes: a rank has a block of elements more of each than another, or not.
  EXPECT_LE(UnlikeRanks(llama_of, offload_request({.shard = 64}, 64, Strategy::full_shard)).size(), 8);
}

// A limit between rank 0 and the fullest rank: what leaves is more than rank 0 alone would need to.
TEST(OffloadChoice, WhatLeavesIsEnoughForTheFullestRank) {
  const StepRequest request = offload_request({.shard = 3}, 3, Strategy::full_shard);
  const model::Model model = llama_of(request);
  const int64_t first = make_step_plan(model, request).arena.total();
  const UnlikeRanks ranks(llama_of, request);
  const int64_t fullest = ranks.measure({}).own;
  ASSERT_GT(fullest, first);
  EXPECT_EQ(offload_rungs(ranks, fullest, 0).size(), 1u);
  const std::vector<OffloadRung> rungs = offload_rungs(ranks, first, 0);
  ASSERT_EQ(rungs.size(), 2u);
  EXPECT_EQ(rungs.back().offload.optimizer, Tier::disk);
  EXPECT_LE(rungs.back().own, first);
}

IdleKinds idle_of(StepRequest request, const OffloadSettings& offload) {
  request.offload = offload;
  const model::Model model = llama_of(request);
  return idle_kinds(model, plan_without_lists(model, request));
}

TEST(OffloadChoice, KindsWithNothingToMoveAreTold) {
  StepRequest request = offload_request({}, 1, Strategy::no_shard);
  const OffloadSettings state{.optimizer = Tier::disk, .master = Tier::cpu};
  EXPECT_THAT(idle_of(request, state).sentences, IsEmpty());
  EXPECT_FALSE(idle_of(request, state).all);
  const IdleKinds few = idle_of(request, {.optimizer = Tier::disk, .activations = Tier::cpu, .ratio = 0.00001});
  EXPECT_THAT(
      few.sentences,
      ElementsAre("offload.optimizer has nothing to move: a share of 1e-05 (offload.ratio) is less than a group",
                  "offload.activations has nothing to move: a share of 1e-05 (offload.ratio) is less than a "
                  "group"));
  EXPECT_TRUE(few.all);
  const IdleKinds late = idle_of(request, {.activations = Tier::cpu, .prefetch = 64});
  EXPECT_THAT(late.sentences,
              ElementsAre(HasSubstr("offload.activations has nothing to move: backward passes follow")));
  EXPECT_TRUE(late.all);
  request.precision = {at::kFloat, at::kFloat};
  EXPECT_THAT(idle_of(request, state).sentences, ElementsAre(HasSubstr("offload.master has nothing to move: units")));
  EXPECT_FALSE(idle_of(request, state).all);
  EXPECT_TRUE(idle_of(request, {.master = Tier::cpu}).all);
  request.optimizer.rule = optim::Rule::sgd;
  EXPECT_THAT(idle_of(request, state).sentences,
              ElementsAre("offload.optimizer has nothing to move: the optimizer keeps no moments",
                          HasSubstr("offload.master has nothing to move")));
  EXPECT_TRUE(idle_of(request, state).all);
  // A gradient that the optimizer uses at once rests nowhere, unless it is a sum over micro-batches.
  StepRequest early = offload_request({}, 1, Strategy::no_shard);
  early.steps_in_backward = true;
  const OffloadSettings sums{.gradients = Tier::cpu};
  EXPECT_THAT(idle_of(early, sums).sentences, IsEmpty());
  early.num_micro_batches = 1;
  EXPECT_THAT(idle_of(early, sums).sentences,
              ElementsAre("offload.gradients has nothing to move: ranks share all that there is, or "
                          "optimizer.in_backward uses it at once"));
  // Most ranks of a mesh own nothing of a small model.
  EXPECT_FALSE(idle_of(offload_request({.shard = 1024}, 1024, Strategy::full_shard), {.optimizer = Tier::disk}).all);
}

}  // namespace
}  // namespace trireme::plan
