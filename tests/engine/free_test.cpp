// The Free Transformer on every mesh that it is built for: the bits, losses, divergences and gradients of one rank.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support.h"
#include "trireme/base/error.h"

namespace trireme::engine {
namespace {

using model::Injection;
using plan::Strategy;

Job free_job(Injection injection, const model::Precision& precision) {
  return {.model = small_free(6, injection), .precision = precision, .steps = 3, .ragged = true};
}

void expect_same_bits(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.measures, b.measures);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.held_out, b.held_out);
  EXPECT_TRUE(at::equal(a.parameters, b.parameters)) << relative_distance(a.parameters, b.parameters);
  EXPECT_EQ(a.planned, a.allocated);
}

void expect_near(const Outcome& a, const Outcome& b, double limit, bool is_one_data_rank) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    EXPECT_NEAR(a.losses[i] / b.losses[i], 1, limit);
    EXPECT_NEAR(a.norms[i] / b.norms[i], 1, limit);
    for (size_t k = 0; k < b.measures[i].size(); ++k)
      EXPECT_NEAR(a.measures[i][k], b.measures[i][k], limit * std::max(1e-3, b.measures[i][k]));
  }
  EXPECT_NEAR(a.held_out / b.held_out, 1, limit);
  // All data ranks evaluate the same tokens here, as other sequences.
  if (is_one_data_rank) EXPECT_NEAR(a.evaluation / b.evaluation, 1, limit);
  EXPECT_LT(relative_distance(a.parameters, b.parameters), limit);
  for (const auto& [name, gradient] : b.gradient)
    EXPECT_LT(relative_distance(a.gradient.at(name), gradient), limit) << name;
  EXPECT_EQ(a.planned, a.allocated);
}

class FreeTransformer : public testing::TestWithParam<Injection> {};
INSTANTIATE_TEST_SUITE_P(All, FreeTransformer, testing::Values(Injection::table, Injection::bits),
                         [](const auto& info) { return info.param == Injection::table ? "Table" : "Bits"; });

TEST_P(FreeTransformer, LearnsWithADivergenceThatIsMeasured) {
  const Outcome one = run(free_job(GetParam(), kFloat64));
  ASSERT_EQ(one.measures.size(), 3u);
  for (const std::vector<double>& m : one.measures) {
    ASSERT_EQ(m.size(), 3u);
    EXPECT_GT(m[0], m[1]);  // the divergence, and what exceeds the free bits
    EXPECT_GT(m[1], 0);
    EXPECT_GT(m[2], 0.1);  // tokens above
    EXPECT_LE(m[2], 1);
  }
}

TEST_P(FreeTransformer, DataRanksGiveTheBitsOfOneRank) {
  for (const model::Precision& precision : {kFloat64, kFloat32, kMixed}) {
    Job job = free_job(GetParam(), precision);
    const Outcome one = run(job);
    for (const int ranks : {2, 3})
      for (const Strategy strategy : {Strategy::no_shard, Strategy::zero1, Strategy::full_shard}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, strategy " << static_cast<int>(strategy));
        job.mesh = {.shard = ranks};
        job.strategy = strategy;
        expect_same_bits(run(job), one);
      }
    job.mesh = {.replicate = 2, .shard = 2};
    job.strategy = Strategy::full_shard;
    expect_same_bits(run(job), one);
  }
}

TEST_P(FreeTransformer, RecomputationChangesNoBit) {
  for (const model::Precision& precision : {kFloat64, kMixed}) {
    Job job = free_job(GetParam(), precision);
    job.poison = true;
    const Outcome one = run(job);
    job.recompute.mode = schedule::Recompute::full;
    expect_same_bits(run(job), one);
  }
}

TEST_P(FreeTransformer, TensorAndPipelineRanksComputeWhatOneRankComputes) {
  Job job = free_job(GetParam(), kFloat64);
  const Outcome one = run(job);
  struct Mesh {
    comm::MeshSizes sizes;
    bool sequence_parallel = false;
    const char* schedule = "1f1b";
  };
  for (const Mesh& mesh :
       {Mesh{{.shard = 1, .tp = 2}}, Mesh{{.shard = 1, .tp = 2}, true}, Mesh{{.pp = 2, .shard = 1}},
        Mesh{{.pp = 3, .shard = 1}, false, "gpipe"}, Mesh{{.pp = 2, .shard = 1}, false, "zb_h1"},
        Mesh{{.pp = 2, .shard = 1}, false, "zb_v"}, Mesh{{.pp = 2, .shard = 1, .tp = 2}, true},
        Mesh{{.shard = 2, .tp = 2}, true}, Mesh{{.pp = 2, .shard = 2}}, Mesh{{.pp = 2, .shard = 2, .tp = 2}}})
    for (const bool again : {false, true}) {
      SCOPED_TRACE(testing::Message() << "pp " << mesh.sizes.pp << " shard " << mesh.sizes.shard << " tp "
                                      << mesh.sizes.tp << (mesh.sequence_parallel ? " sp " : " ") << mesh.schedule
                                      << (again ? ", recomputed" : ""));
      job.mesh = mesh.sizes;
      job.strategy = mesh.sizes.shard > 1 ? Strategy::full_shard : Strategy::no_shard;
      job.sequence_parallel = mesh.sequence_parallel;
      job.pipeline.schedule = mesh.schedule;
      job.recompute.mode = again ? schedule::Recompute::full : schedule::Recompute::none;
      job.poison = again;
      expect_near(run(job), one, 1e-9, job.mesh.shard == 1);
    }
}

TEST_P(FreeTransformer, LocalSumsAndWrappedGroupsComputeTheSame) {
  Job job = free_job(GetParam(), kFloat64);
  const Outcome one = run(job);
  job.mesh = {.shard = 2};
  job.strategy = Strategy::full_shard;
  for (const model::WrapBy by : {model::WrapBy::layer, model::WrapBy::parameter}) {
    job.grouping.by = by;
    expect_near(run(job), one, 1e-9, job.mesh.shard == 1);
  }
  job.grouping = {};
  job.local_accumulation = true;
  job.ordered = false;
  expect_near(run(job), one, 1e-9, job.mesh.shard == 1);
}

TEST_P(FreeTransformer, DocumentsComputeTheSameOnEveryMesh) {
  Job job = free_job(GetParam(), kFloat64);
  const Outcome whole = run(job);
  job.documents = {.attention = true, .positions = true};
  const Outcome one = run(job);
  EXPECT_GT(std::abs(one.losses[0] - whole.losses[0]), 1e-6);
  for (const comm::MeshSizes& mesh :
       {comm::MeshSizes{.shard = 1, .tp = 2}, comm::MeshSizes{.pp = 2, .shard = 1}, comm::MeshSizes{.shard = 2}}) {
    job.mesh = mesh;
    expect_near(run(job), one, 1e-9, job.mesh.shard == 1);
  }
}

std::string refusal(Job job) {
  try {
    run(job);
    return "";
  } catch (const UsageError& e) {
    return e.what();
  }
}

TEST(FreeTransformerRefusals, NameWhatIsNotBuiltInOneSentence) {
  using testing::HasSubstr;
  const Job job = free_job(Injection::table, kFloat64);
  const auto with = [&](const auto& change) {
    Job changed = job;
    change(changed);
    return refusal(changed);
  };
  EXPECT_THAT(with([](Job& j) { j.mesh = {.shard = 1, .cp = 2}; }), HasSubstr("encoder sees whole ones"));
  EXPECT_THAT(with([](Job& j) { j.mesh = {.shard = 1, .tp = 4}; }), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(with([](Job& j) { j.precision = kHalfMixed; }), HasSubstr("32-true, bf16-mixed or 64-true"));
  EXPECT_THAT(with([](Job& j) { j.grouping.matrices_apart = true; }), HasSubstr("Muon"));
  EXPECT_THAT(with([](Job& j) { j.model.free.split_layer = 4; }), HasSubstr("from 1 to 3"));
  EXPECT_THAT(with([](Job& j) { j.model.free.latent_bits = 21; }), HasSubstr("free.injection bits"));
  EXPECT_THAT(with([](Job& j) { j.adapters.modules["model.layers.0.self_attn.q_proj"] = {}; }), HasSubstr("lora"));
}

}  // namespace
}  // namespace trireme::engine
