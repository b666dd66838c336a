// Local accumulation: backward adds to each rank's own sum, in the dtype of the state, whatever backward is made of.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support.h"
#include "trireme/ops/products/products.h"

namespace trireme::engine {
namespace {

using Mode = schedule::Recompute;

// LibTorch's products are rounded before they are added; vectors and tables are not made by it.
const bool kLibraryRounds = ops::product_kernel_name(at::kBFloat16) == std::string("LibTorch");

Job local_job(const std::string& family, const model::Precision& precision) {
  Job job{.model = small_model(family), .precision = precision};
  job.ordered = false;
  job.local_accumulation = true;
  return job;
}

struct LocalDivision {
  std::string family;
  comm::MeshSizes mesh;
  plan::Strategy strategy = plan::Strategy::full_shard;
  bool sequence_parallel = false;
  std::string schedule = "1f1b";
  Mode recompute = Mode::none;
  int64_t kv_heads = 0;  ///< 0: the model's own
  bool tied = false;
};

std::vector<LocalDivision> local_divisions() {
  using plan::Strategy;
  return {{"llama", {.shard = 1}, Strategy::no_shard},
          {"llama", {.shard = 2}, Strategy::no_shard, false, "1f1b", Mode::full, 0, true},
          {"gpt2", {.shard = 2}, Strategy::zero1},
          {"gpt2", {.pp = 2, .shard = 2}, Strategy::shard_grad_op, false, "zb_h1"},  // tied over stages
          {"llama", {.shard = 1, .tp = 4}, Strategy::no_shard, false, "1f1b", Mode::none, 1},
          {"qwen3", {.shard = 2, .tp = 2}, Strategy::full_shard, true, "1f1b", Mode::full, 1},
          {"gemma3", {.pp = 2, .shard = 1, .tp = 2}, Strategy::no_shard, true, "zb_v"},
          {"llama", {.pp = 2, .replicate = 2, .shard = 2}, Strategy::full_shard, false, "interleaved_1f1b"},
          {"llama", {.replicate = 2, .shard = 2, .cp = 2}, Strategy::full_shard, false, "1f1b", Mode::full, 0, true}};
}

Job job_of(const LocalDivision& d, const model::Precision& precision) {
  Job job = local_job(d.family, precision);
  if (d.kv_heads > 0) job.model.num_key_value_heads = d.kv_heads;
  if (d.tied) job.model.tie_word_embeddings = true;
  job.model.num_hidden_layers = 4;
  if (!job.model.windowed.empty()) job.model.windowed = {true, false, true, false};
  job.mesh = d.mesh;
  job.strategy = d.strategy;
  job.sequence_parallel = d.sequence_parallel;
  job.pipeline.schedule = d.schedule;
  job.recompute.mode = d.recompute;
  job.global_micro_batches = 7;  // the last round is not full
  job.ragged = job.poison = true;
  return job;
}

std::string describe(const LocalDivision& d) {
  return fmt::format("{} pp={} {} replicate={} shard={} cp={} tp={} sp={}", d.family, d.mesh.pp, d.schedule,
                     d.mesh.replicate, d.mesh.shard, d.mesh.cp, d.mesh.tp, d.sequence_parallel);
}

// Sums in another order: 1e-10, as for every other division.
TEST(LocalAccumulation, OfAnyUnitOnAnyMeshEqualsOneRankInFloat64) {
  for (const LocalDivision& d : local_divisions()) {
    SCOPED_TRACE(describe(d));
    const Job many = job_of(d, kFloat64);
    Job one{.model = many.model, .precision = kFloat64, .global_micro_batches = many.global_micro_batches};
    one.ragged = true;
    const Outcome expected = run(one), found = run(many);
    EXPECT_LE(relative_distance(found.gradients, expected.gradients), 1e-10);
    EXPECT_LE(relative_distance(found.parameters, expected.parameters), 1e-10);
    EXPECT_EQ(found.planned, found.allocated);
  }
}

// In mixed precision the widths differ too. Tensor-parallel ranks round partial sums: bf16's 4e-3, a few times over.
TEST(LocalAccumulation, InMixedPrecisionFollowsFloat32OnAnyMesh) {
  for (const LocalDivision& d : local_divisions()) {
    SCOPED_TRACE(describe(d));
    const Job many = job_of(d, kMixed);
    Job exact{.model = many.model, .precision = {at::kFloat, at::kFloat}, .steps = 1};
    exact.global_micro_batches = many.global_micro_batches;
    exact.ragged = true;
    const Outcome expected = run(exact), found = run(many);
    const double distance = relative_distance(found.gradients, expected.gradients);
    EXPECT_LE(distance, 2e-2);
    EXPECT_GE(distance, 1e-5) << "computed in float32?";
    EXPECT_EQ(found.planned, found.allocated);
  }
}

// Elements that change when they are rounded to bfloat16.
double share_beyond_bfloat16(const at::Tensor& x) {
  return x.ne(x.to(at::kBFloat16).to(x.scalar_type())).to(at::kDouble).mean().item<double>();
}

TEST(LocalAccumulation, DoesNotRoundTheGradientOfAMicroBatch) {
  for (const char* family : {"llama", "gpt2", "qwen3", "gemma3"}) {
    Job job = local_job(family, kMixed);
    job.steps = job.global_micro_batches = 1;
    const double share = share_beyond_bfloat16(run(job).gradients);
    job.local_accumulation = false;
    EXPECT_EQ(share_beyond_bfloat16(run(job).gradients), 0) << family;  // a slot of the compute dtype
    EXPECT_GT(share, kLibraryRounds ? 1e-3 : 0.5) << family;
  }
}

// The sum of sixteen is that of sixteen alone, to float32's rounding; by way of slots it is off by bfloat16's, however
// many there are.
TEST(LocalAccumulation, OfManyMicroBatchesLosesNoBits) {
  constexpr int kMicroBatches = 16;
  for (const char* family : {"llama", "gpt2"}) {
    Job job = local_job(family, kMixed);
    job.steps = 1;
    job.global_micro_batches = kMicroBatches;
    const at::Tensor local = run(job).gradients;
    job.local_accumulation = false;
    const at::Tensor slots = run(job).gradients;
    job.local_accumulation = true;
    at::Tensor sum = at::zeros_like(local);
    for (int i = 0; i < kMicroBatches; ++i) {
      Job alone = job;
      alone.global_micro_batches = 1;
      alone.first_micro_batch = i;
      sum += run(alone).gradients / kMicroBatches;  // each is normalised by its own tokens
    }
    Job exact = job;
    exact.precision = {at::kFloat, at::kFloat};
    const at::Tensor truth = run(exact).gradients;
    fmt::print("{}: from the sum of {}: local {:.2e}, slots {:.2e}; from float32: local {:.5e}, slots {:.5e}\n", family,
               kMicroBatches, relative_distance(local, sum), relative_distance(slots, sum),
               relative_distance(local, truth), relative_distance(slots, truth));
    EXPECT_LE(relative_distance(local, sum), 1e-6);
    if (kLibraryRounds) continue;  // each alone too
    EXPECT_GE(relative_distance(slots, sum), 1e-4);
    EXPECT_LT(relative_distance(local, truth), relative_distance(slots, truth));
  }
}

}  // namespace
}  // namespace trireme::engine
