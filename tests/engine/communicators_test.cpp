#include "trireme/engine/communicators.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/model/model.h"

namespace trireme::engine {
namespace {

float sum_of(comm::Communicator& c, float value) {
  at::Tensor t = at::full({1}, value, at::kFloat);
  c.all_reduce(t, t, {})->wait();
  return t.item<float>();
}

// Losses, norms and activations keep all their bits.
TEST(Communicators, OnlySumsOfGradientsTravelAsBf16) {
  const float value = 1.0F + 1.0F / 1024;  // bf16 has 8 bits
  const Job job{
      .model = small_llama(), .backend = "gloo", .mesh = {.shard = 2}, .strategy = plan::Strategy::full_shard};
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      const plan::StepRequest r = request_of(job, rank);
      const model::Model model = model::build_model(job.model, job.precision, r.parallel(), job.grouping);
      const Communicators c =
          connect(plan::make_step_plan(model, r), {.name = "", .backend = "gloo", .store = store, .bf16_sums = true});
      EXPECT_EQ(sum_of(*c.reduce, value), 2.0F);
      for (const auto& exact : {c.world, c.gather, c.loss}) EXPECT_EQ(sum_of(*exact, value), 2 * value);
    });
}

// A rank that plans another list than the others would overwrite what they read.
TEST(Communicators, RanksWithUnlikePlacesInSharedMemoryAreRefused) {
  const Job job{
      .model = small_llama(), .precision = kFloat32, .mesh = {.shard = 2}, .strategy = plan::Strategy::full_shard};
  for (const schedule::Memory memory : {schedule::Memory::host_shared, schedule::Memory::symmetric}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] {
        const plan::StepRequest r = request_of(job, rank);
        const model::Model model = model::build_model(job.model, r.precision, r.parallel(), job.grouping);
        plan::StepPlan plan = plan::make_step_plan(model, r);
        const Communicators c = connect(plan, {.name = "", .backend = "threads", .store = store});
        std::vector<schedule::Value>& values = plan.lists[schedule::List::train].values;
        const auto moved = std::ranges::find(values, memory, &schedule::Value::memory);
        ASSERT_NE(moved, values.end());
        if (rank == 1) moved->offset += schedule::kValueAlignment;
        try {
          const Engine engine(model, std::move(plan), c);
          ADD_FAILURE() << "rank " << rank << " begins";
        } catch (const InternalError& refusal) {
          EXPECT_THAT(refusal.what(), testing::HasSubstr("share memory and have planned different places"));
        }
      });
  }
}

}  // namespace
}  // namespace trireme::engine
