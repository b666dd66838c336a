// Idle time of pipelines, measured: four thread ranks run units that sleep for a known time.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "support.h"
#include "trireme/engine/engine.h"

namespace trireme::engine {
namespace {

auto cost = std::chrono::milliseconds(12);  // of a forward, an input half, a weight half; changed between runs
constexpr int kRanks = 4, kBubbleMicroBatches = 8;

class SleepingUnit final : public model::Unit {
 public:
  SleepingUnit(int index, int count) : index_(index), count_(count) {
    parameters_ = {{fmt::format("unit{}.weight", index), {1}, {model::Initializer::Kind::ones, 0}, false}};
  }
  std::string name() const override { return fmt::format("unit {}", index_); }
  const std::vector<model::ParameterSpec>& parameters() const override { return parameters_; }
  model::UnitValues values(const model::BatchShape& shape, const model::Precision& p) const override {
    model::UnitValues v;
    if (index_ + 1 < count_) v.output = {"output", {shape.tokens()}, p.compute};
    v.saved = {{"saved", {1}, p.compute}};
    v.deferred = {{"deferred", {1}, p.compute}};
    return v;
  }
  void forward(model::UnitTensors& t) const override {
    std::this_thread::sleep_for(cost);
    if (t.output.defined()) t.output.fill_(1);
    t.saved[0].fill_(1);
    if (t.loss_sum.defined()) t.loss_sum.fill_(1);
  }
  void recompute(model::UnitTensors&, const std::vector<int>&) const override {}
  void backward(model::UnitTensors& t) const override {
    backward_input(t);
    std::this_thread::sleep_for(cost);
    t.gradients[0].fill_(1);
  }
  bool splits_backward() const override { return true; }
  void backward_input(model::UnitTensors& t) const override {
    std::this_thread::sleep_for(cost);
    if (t.d_boundary.defined()) t.d_boundary.fill_(1);
    if (!t.deferred.empty() && t.deferred[0].defined()) t.deferred[0].fill_(1);
  }
  void backward_weight(model::UnitTensors& t) const override {
    std::this_thread::sleep_for(cost);
    t.gradients[0].fill_(1);
  }
  double forward_flops(const model::BatchShape&) const override { return 1; }

 private:
  int index_, count_;
  std::vector<model::ParameterSpec> parameters_;
};

model::Model sleeping_model(int units) {
  model::Model m;
  for (int u = 0; u < units; ++u) {
    m.units.push_back(std::make_unique<SleepingUnit>(u, units));
    m.groups.push_back({m.units.back()->name(), m.units.back()->parameters()});
    m.places.push_back({{u, 0}});
  }
  return m;
}

struct Idle {
  double first = 1e9, last = 0, busy = 0;
  double counted = 1;  ///< the least part of a rank's time that its actions have, with waiting for their end
  void add(double begin, double end) {
    first = std::min(first, begin);
    last = std::max(last, end);
    busy += end - begin;
  }
  double fraction() const { return 1 - busy / (kRanks * (last - first)); }
};

plan::StepRequest request_on(int rank, const std::string& schedule) {
  plan::StepRequest r{
      .precision = kFloat32, .shape = {1, 4}, .mesh = {{.pp = kRanks, .shard = 1}, kRanks}, .rank = rank};
  r.num_micro_batches = kBubbleMicroBatches;
  r.pipeline.schedule = schedule;
  return r;
}

Idle measured(const std::string& schedule, const model::Model& model) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<Idle> idle(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      const plan::StepPlan plan = plan::make_step_plan(model, request_on(rank, schedule));
      Engine engine(
          model, plan,
          connect(plan, {.name = "", .backend = "threads", .store = store, .timeout = std::chrono::seconds(60)}));
      engine.initialize(1);
      const StepInputs inputs{.load_batch = [](int, const BatchTensors&) {}, .optimizer = {.step = 1}};
      engine.communicators().world->barrier()->wait();
      engine.train_step(inputs);
      double counted = 0;
      for (const ActionTime& t : engine.timeline()) counted += t.end - t.begin + t.waited;
      idle[rank].counted = counted / (engine.timeline().back().end - engine.timeline().front().begin);
      for (const ActionTime& t : engine.timeline())
        if (schedule::is_computation(plan.train().actions[t.action].kind)) idle[rank].add(t.begin, t.end);
    });
  for (std::thread& t : threads) t.join();
  Idle all;
  for (const Idle& one : idle) {
    all.first = std::min(all.first, one.first);
    all.last = std::max(all.last, one.last);
    all.busy += one.busy;
    all.counted = std::min(all.counted, one.counted);
  }
  return all;
}

Idle simulated(const std::string& schedule, const model::Model& model) {
  const plan::StepPlan plan = plan::make_step_plan(model, request_on(0, schedule));
  const auto lists = plan::stage_lists(model, plan, schedule::List::train);
  const auto programs = plan::rank_programs(plan, lists);
  const schedule::Simulation s = schedule::simulate(programs, schedule::Rates{});
  Idle all;
  for (int rank = 0; rank < kRanks; ++rank)
    for (size_t i = 0; i < s.spans[rank].size(); ++i)
      if (schedule::is_computation(lists[rank].actions[i].kind)) all.add(s.spans[rank][i].begin, s.spans[rank][i].end);
  return all;
}

TEST(Bubble, MeasuredIdleTimeIsTheSimulatedAndTheFormulas) {
  const double p = kRanks, m = kBubbleMicroBatches;
  const std::map<std::string, double> formulas = {{"gpipe", (p - 1) / (m + p - 1)},
                                                  {"1f1b", (p - 1) / (m + p - 1)},
                                                  {"interleaved_1f1b", (p - 1) / (2 * m + p - 1)},
                                                  {"zb_h1", (p - 1) / (3 * m + p - 1)},
                                                  {"zb_v", (p - 1) / (6 * m + p - 1)}};
  for (const auto& [name, formula] : formulas) {
    const model::Model model = sleeping_model(kRanks * schedule::pipeline_schedule(name).default_chunks);
    const double predicted = simulated(name, model).fraction();
    EXPECT_NEAR(predicted, formula, 1e-9) << name;
    // Sleeping threads of a busy machine wake late, by a time that does not depend on how long they slept: so longer
    // and longer sleeps are tried.
    const auto shortest = cost;
    double found = 1, counted = 0;
    for (int attempt = 0; attempt < 16 && std::abs(found - predicted) > 0.03; ++attempt) {
      cost = shortest * (1 + attempt / 4 * 2);
      const Idle idle = measured(name, model);
      found = idle.fraction(), counted = idle.counted;
    }
    cost = shortest;
    EXPECT_NEAR(found, predicted, 0.03) << name;
    EXPECT_GT(counted, 0.9) << name << ": ranks wait in actions, too";
    fmt::print("{:<18} formula {:.3f} simulated {:.3f} measured {:.3f}\n", name, formula, predicted, found);
  }
}

}  // namespace
}  // namespace trireme::engine
