#include "trireme/costs/step_costs.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/costs/report.h"
#include "trireme/plan/arithmetic.h"
#include "trireme/plan/stage_plans.h"

namespace trireme::costs {
namespace {

std::vector<int> first(int count) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(i);
  return ranks;
}

Hardware plain() {
  Hardware h;
  h.name = "plain";
  h.memory = 80;
  h.memory_rate = 1000;
  h.peak = {.fp64 = 1, .fp32 = 10, .bf16 = 100};
  h.share = {.product = 0.5, .product_half = 0, .attention = 0.25, .memory = 1};
  h.inside = {.rate = 100, .latency = 0, .share = 1};
  h.between = {.rate = 10, .latency = 0, .share = 1};
  return h;
}

TEST(StepCosts, AnOperationIsBoundByArithmeticOrByBytes) {
  const Machines machines{.hardware = plain()};
  EXPECT_DOUBLE_EQ(
      operation_seconds(machines,
                        {.name = "product_nt", .dtype = at::kBFloat16, .m = 1000, .n = 1000, .k = 1000, .flops = 2e9}),
      2e9 / (100e12 * 0.5));
  EXPECT_DOUBLE_EQ(operation_seconds(machines, {.name = "add_forward", .m = 10, .n = 10, .k = 1, .bytes = 1e9}), 1e-3);
  EXPECT_DOUBLE_EQ(
      operation_seconds(machines,
                        {.name = "attention_forward", .dtype = at::kBFloat16, .m = 10, .n = 10, .k = 1, .flops = 1e12}),
      1e12 / (100e12 * 0.25));
  EXPECT_EQ(operation_seconds(machines, {.name = "add_forward", .m = 0, .n = 10, .k = 1, .bytes = 0}), 0);
}

TEST(StepCosts, CollectivesAreRingsAndMachinesShareTheirConnections) {
  const Machines machines{.hardware = plain(), .ranks = 4};
  const double bytes = 1e9;
  EXPECT_DOUBLE_EQ(collective_seconds(machines, comm::Operation::all_reduce, bytes, first(4)),
                   plan::ring_all_reduce_seconds(4, bytes, 100e9));
  EXPECT_DOUBLE_EQ(collective_seconds(machines, comm::Operation::all_gather, bytes, first(4)), 0.75 * bytes / 100e9);
  EXPECT_EQ(collective_seconds(machines, comm::Operation::all_gather, bytes, first(1)), 0);
  // Two machines of four: four connections of 10 GB/s each side by side.
  EXPECT_DOUBLE_EQ(collective_seconds(machines, comm::Operation::all_gather, bytes, first(8)), 7.0 / 8 * bytes / 40e9);
  EXPECT_DOUBLE_EQ(collective_seconds(machines, comm::Operation::send, bytes, {0, 4}), bytes / 10e9);
}

TEST(StepCosts, ARingHasTheRateOfItsRanksLink) {
  const Machines machines{.hardware = plain(), .ranks = 4};
  EXPECT_DOUBLE_EQ(ring_rate(machines, {4, 5, 6, 7}), 100);  // of eight ranks, those of one machine
  EXPECT_DOUBLE_EQ(ring_rate(machines, {1, 5}), 10);
  EXPECT_DOUBLE_EQ(ring_rate(machines, first(8)), 40);
}

TEST(StepCosts, MeasuredShapesAreExactAndOthersLieBetween) {
  Hardware h = plain();
  h.measured_operations = {{"product_nt", at::kFloat, 1, 1, 256, 256, 256, 1e-3},
                           {"product_nt", at::kFloat, 1, 1, 1024, 256, 256, 3e-3},
                           {"product_nt", at::kFloat, 2, 1, 256, 256, 256, 5e-3},
                           {"product_nt", at::kFloat, 1, 1, 0, 256, 256, 1e-6}};
  const Machines one{.hardware = h, .ranks = 1, .threads = 1}, two{.hardware = h, .ranks = 2, .threads = 1};
  const auto seconds = [](const Machines& machines, int64_t m) {
    return operation_seconds(machines,
                             {.name = "product_nt", .dtype = at::kFloat, .m = m, .n = 256, .k = 256, .flops = 1});
  };
  EXPECT_NEAR(seconds(one, 256), 1e-3, 1e-6);
  EXPECT_NEAR(seconds(one, 1024), 3e-3, 3e-6);
  EXPECT_NEAR(seconds(two, 256), 5e-3, 1e-5);  // what was measured with as many ranks
  EXPECT_GT(seconds(one, 512), 1.5e-3);
  EXPECT_LT(seconds(one, 512), 2e-3);
}

Prediction predicted(const engine::Job& job, const Hardware& hardware) {
  const plan::StepRequest r = engine::request_of(job, 0);
  const model::Model model = model::build_model(job.model, r.precision, r.parallel(), job.grouping);
  const plan::StepPlan plan = plan::make_step_plan(model, r);
  return predict(model, plan, {.hardware = hardware, .ranks = 8});
}

TEST(StepCosts, AStepIsTheSumOfItsCausesAndOfWaits) {
  const Prediction p = predicted({.model = engine::small_llama(), .precision = engine::kMixed}, plain());
  double sum = 0;
  for (const double seconds : p.causes) sum += seconds;
  EXPECT_NEAR(sum, p.step, 1e-12);
  EXPECT_NEAR(p.causes[static_cast<size_t>(base::Activity::other)], 0, 1e-12);  // one rank waits for nobody
  EXPECT_LT(p.model_flops, p.executed_flops);  // attention's backward computes scores again
  engine::Job again{
      .model = engine::small_llama(), .precision = engine::kMixed, .recompute = {.mode = schedule::Recompute::full}};
  const Prediction q = predicted(again, plain());
  EXPECT_EQ(q.model_flops, p.model_flops);
  EXPECT_GT(q.executed_flops, p.executed_flops);
}

TEST(StepCosts, WhatBindsAStepIsNamedByTheAxesThereAre) {
  Prediction p;
  p.causes[static_cast<size_t>(base::Activity::communication)] = 1;  // processors move it themselves
  const auto bound = [&](const comm::MeshSizes& mesh) {
    const plan::StepRequest r =
        engine::request_of({.model = engine::small_llama(), .mesh = mesh, .strategy = plan::Strategy::full_shard}, 0);
    const model::Model model = model::build_model(engine::small_llama(), r.precision, r.parallel());
    return binding(p, plan::make_step_plan(model, r));
  };
  EXPECT_EQ(bound({.shard = 2}), "communication of weights and gradients");
  EXPECT_EQ(bound({.shard = 1, .tp = 2}), "communication inside units (mesh.tp, mesh.cp)");
}

TEST(StepCosts, MuonsProductsTakeTime) {
  engine::Job job{.model = engine::small_llama(), .precision = engine::kMixed};
  const auto products = [&] { return predicted(job, plain()).causes[static_cast<size_t>(base::Activity::products)]; };
  const double adamw = products();
  job.optimizer.rule = optim::Rule::muon;
  job.grouping.matrices_apart = true;
  EXPECT_GT(products(), 1.01 * adamw);
}

TEST(StepCosts, ARankAloneCommunicatesNothing) {
  engine::Job job{.model = engine::small_llama(), .precision = engine::kMixed};
  const auto cause = [](const Prediction& p, base::Activity activity) {
    return p.causes[static_cast<size_t>(activity)];
  };
  Hardware slow = plain();
  slow.memory_rate = 1;  // of adding micro-batches up, too
  for (const bool shares_cores : {false, true}) {
    slow.shares_cores = shares_cores;
    const Prediction p = predicted(job, slow);
    EXPECT_EQ(cause(p, base::Activity::communication), 0);
    EXPECT_GT(cause(p, base::Activity::elementwise), 0);
  }
}

TEST(StepCosts, RefusesHardwareWithoutTheLinksThatRanksNeed) {
  const engine::Job job{.model = engine::small_llama(), .precision = engine::kMixed, .mesh = {.shard = 4}};
  Hardware alone = plain();
  alone.inside.rate = 0;
  EXPECT_THROW(predicted(job, alone), UsageError);
  alone.shares_cores = true;
  EXPECT_NO_THROW(predicted(job, alone));
  const plan::StepRequest r = engine::request_of(job, 0);
  const model::Model model = model::build_model(job.model, r.precision, r.parallel());
  const plan::StepPlan plan = plan::make_step_plan(model, r);
  EXPECT_THROW(predict(model, plan, {.hardware = alone, .ranks = 2}), UsageError);  // it was one machine
}

TEST(StepCosts, SlowLinksAndFewMicroBatchesAreWaits) {
  engine::Job job{.model = engine::small_llama(),
                  .precision = engine::kMixed,
                  .mesh = {.shard = 4},
                  .strategy = plan::Strategy::full_shard};
  Hardware slow = plain();
  slow.inside.rate = 1e-3;
  const Prediction fast = predicted(job, plain()), waits = predicted(job, slow);
  const auto idle = [](const Prediction& p) { return p.causes[static_cast<size_t>(base::Activity::other)] / p.step; };
  EXPECT_GT(idle(waits), 0.9);
  EXPECT_LT(idle(fast), idle(waits));
  // Where the cores move the bytes, the time is the rank's own.
  slow.shares_cores = true;
  slow.measured_collectives = {{"move", 4, 1000, 1}};
  const Prediction shared = predicted(job, slow);
  EXPECT_GT(shared.causes[static_cast<size_t>(base::Activity::communication)] / shared.step, 0.9);
}

Prediction on_disk(const schedule::OffloadSettings& offload, const Hardware& disk) {
  engine::Job job{.model = engine::small_llama(), .precision = engine::kMixed};
  job.model.num_hidden_layers = 8;
  job.offload = offload;
  Hardware h = disk;
  h.shares_cores = true;
  return predicted(job, h);
}

// A disk that is slow, and moves `alone` GB/s in one direction alone.
double seconds_of_moving(const schedule::OffloadSettings& offload, double alone) {
  Hardware h = plain();
  h.disk_rate = 1e-3;
  h.disk_read_rate = h.disk_write_rate = alone;
  return on_disk(offload, h).step;
}

// Activations only leave while passes go forward, and only come back while they go backward; moments come and leave at
// the same time.
TEST(StepCosts, ADiskThatMovesOneWayAloneHasTheRateOfThatWay) {
  const schedule::OffloadSettings activations{.activations = schedule::Tier::disk},
      moments{.optimizer = schedule::Tier::disk};
  const double both_ways = seconds_of_moving(activations, 0), at_once = seconds_of_moving(moments, 0);
  EXPECT_NEAR(seconds_of_moving(activations, 1e-3) / both_ways, 1, 1e-9);
  EXPECT_LT(seconds_of_moving(activations, 2e-3) / both_ways, 0.7);
  EXPECT_GT(seconds_of_moving(activations, 2e-3) / both_ways, 0.49);
  EXPECT_GT(seconds_of_moving(moments, 2e-3) / at_once, 0.8);
  EXPECT_LT(seconds_of_moving(moments, 2e-3) / at_once, 1);
}

// A fast disk still takes a core's time for each byte; a slow one takes none that the step would not wait anyway.
TEST(StepCosts, WhatADiskTakesOfACoreHidesBehindWaitsForIt) {
  const schedule::OffloadSettings moments{.optimizer = schedule::Tier::disk};
  for (const bool slow : {false, true}) {
    Hardware h = plain();
    h.disk_rate = slow ? 1e-3 : 1e6;
    const double without = on_disk(moments, h).step;
    h.disk_work = 0.1;
    const Prediction p = on_disk(moments, h);
    double gigabytes = 0;
    for (const schedule::Action& a : p.lists.front().actions)
      if (schedule::is_transfer(a.kind)) gigabytes += 1e-9 * double(a.bytes);
    EXPECT_NEAR((p.step - without) / (0.1 * gigabytes), slow ? 0.15 : 1, slow ? 0.15 : 0.01);
  }
}

// Two stages on one machine, or each on its own: what they offload adds up where they share a memory.
TEST(StepCosts, WhatDevicesOffloadHasToFitTheirMachine) {
  engine::Job job{.model = engine::small_llama(), .precision = engine::kMixed, .mesh = {.pp = 2, .shard = 1}};
  job.offload = {.optimizer = schedule::Tier::cpu, .master = schedule::Tier::disk};
  const plan::StepRequest r = engine::request_of(job, 0);
  const model::Model model = model::build_model(job.model, r.precision, r.parallel());
  const std::vector<plan::StepPlan> plans = plan::make_stage_plans(model, r, plan::PlacedStages::all);
  const auto host = [&](size_t stage) { return double(plans[stage].arena.of(schedule::Memory::host)); };
  ASSERT_GT(host(0), 0);
  const StagePlans stages = {&plans[0], &plans[1]};
  Machines machines{.hardware = plain(), .ranks = 2};
  EXPECT_EQ(offloaded(stages, machines).host, host(0) + host(1));
  EXPECT_GT(offloaded(stages, machines).disk, 0);
  EXPECT_TRUE(fits(stages, machines));  // nothing says how much memory the machine has
  machines.hardware.host_memory = 1e-9 * (host(0) + host(1) - 1);
  EXPECT_FALSE(fits(stages, machines));
  std::optional<Prediction> p(std::in_place);
  p->step = 1;
  EXPECT_THAT(render_plan(stages, p, machines, {}, 1, "more machines"),
              testing::AllOf(testing::HasSubstr("does NOT fit: offload.* takes"), testing::HasSubstr("\nhost  "),
                             testing::HasSubstr("\ndisk  "), testing::HasSubstr("\ntry      more machines\n")));
  machines.ranks = 1;
  EXPECT_EQ(offloaded(stages, machines).host, std::max(host(0), host(1)));
  EXPECT_TRUE(fits(stages, machines));
}

}  // namespace
}  // namespace trireme::costs
