// Logical bytes that go through each communicator in a step equal the textbook formulas, each in bytes of its own
// dtype, computed from the padded layouts.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support.h"

namespace trireme::engine {
namespace {

constexpr int64_t kCompute = 2, kState = 4;  // bf16-mixed
constexpr int kMicroBatchesPerRank = 3;  // data ranks

Job job_on(comm::MeshSizes mesh, plan::Strategy strategy) {
  Job job{.model = small_llama(), .precision = kMixed, .mesh = mesh, .strategy = strategy, .steps = 1};
  job.global_micro_batches = kMicroBatchesPerRank * mesh.replicate * mesh.shard;
  return job;
}

// The layouts of a job's groups as rank `rank` sees them.
struct Layouts {
  std::vector<shard::FlatLayout> all;
  explicit Layouts(const Job& job) {
    const plan::StepRequest r = request_of(job, 0);
    const model::Model model = model::build_model(job.model, job.precision, r.parallel());
    all = plan::make_step_plan(model, r).layouts;
  }
  // Sum over groups of what `count` elements says of each.
  template <typename F>
  int64_t sum(F count) const {
    int64_t total = 0;
    for (const shard::FlatLayout& layout : all) total += count(layout);
    return total;
  }
};

int64_t at(const Outcome& o, int rank, const std::string& what) {
  const auto it = o.traffic[rank].find(what);
  return it == o.traffic[rank].end() ? 0 : it->second;
}

TEST(Traffic, ReplicatedRanksAllReduceEachGradientOncePerMicroBatch) {
  const Job job = job_on({.shard = 4}, plan::Strategy::no_shard);
  const Outcome o = run(job);
  const int64_t whole = Layouts(job).sum([](const auto& l) { return 2 * l.numel() * kCompute * 3 / 4; });
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(at(o, r, "reduce.all_reduce"), kMicroBatchesPerRank * whole);
    EXPECT_EQ(at(o, r, "gather.all_gather"), 0);
  }
}

TEST(Traffic, Zero1AndZero2GatherWeightsOnceAStep) {
  for (plan::Strategy strategy : {plan::Strategy::zero1, plan::Strategy::shard_grad_op}) {
    const Job job = job_on({.shard = 4}, strategy);
    const Outcome o = run(job);
    const Layouts layouts(job);
    for (int r = 0; r < 4; ++r) {
      const int64_t others = layouts.sum([&](const auto& l) { return l.numel() - l.owned(r, 4).size(); });
      EXPECT_EQ(at(o, r, "gather.all_gather"), others * kCompute);
      if (strategy == plan::Strategy::shard_grad_op) {
        EXPECT_EQ(at(o, r, "reduce.reduce_scatter"), kMicroBatchesPerRank * others * kCompute);
      } else {
        EXPECT_EQ(at(o, r, "reduce.all_reduce"),
                  kMicroBatchesPerRank * layouts.sum([](const auto& l) { return 2 * l.numel() * kCompute * 3 / 4; }));
      }
    }
  }
}

// Embedding and head once (the embedding's backward reads no weights), blocks twice, but the last block is kept:
// only the head lies between its forward and its backward.
TEST(Traffic, Zero3GathersBeforeForwardAndBackwardWhatIsNotKept) {
  const Job job = job_on({.shard = 4}, plan::Strategy::full_shard);
  const Outcome o = run(job);
  const Layouts layouts(job);
  for (int r = 0; r < 4; ++r) {
    const auto others = [&](const shard::FlatLayout& l) { return (l.numel() - l.owned(r, 4).size()) * kCompute; };
    const int64_t gathers = layouts.sum([&](const shard::FlatLayout& l) {
      return others(l) * (l.name() == "block 0" || l.name() == "block 1" ? 2 : 1);
    });
    EXPECT_EQ(at(o, r, "gather.all_gather"), kMicroBatchesPerRank * gathers);
    EXPECT_EQ(at(o, r, "reduce.reduce_scatter"), kMicroBatchesPerRank * layouts.sum(others));
  }
}

TEST(Traffic, HybridExchangesTheShardsGradientBetweenReplicasOnceAStep) {
  for (bool ordered : {true, false}) {
    Job job = job_on({.replicate = 2, .shard = 2}, plan::Strategy::full_shard);
    job.ordered = ordered;
    const Outcome o = run(job);
    const Layouts layouts(job);
    for (int r = 0; r < 4; ++r) {
      const int shard = r % 2, replica = r / 2, part = shard * 2 + replica;
      const int64_t owned = layouts.sum([&](const auto& l) { return l.owned(shard, 2).size(); });
      const int64_t mine = layouts.sum([&](const auto& l) { return l.owned(part, 4).size(); });
      const int64_t all = layouts.sum([](const auto& l) { return l.numel(); });
      if (ordered) {  // direct exchange: each rank folds a quarter, halves of a shard are then put together
        EXPECT_EQ(at(o, r, "reduce.reduce_scatter"), kMicroBatchesPerRank * (all - mine) * kCompute);
        EXPECT_EQ(at(o, r, "replicas.all_gather"), (owned - mine) * kState);
      } else {        // hierarchical: 2 (R-1)/R of the shard's gradient between hosts
        EXPECT_EQ(at(o, r, "reduce.reduce_scatter"), kMicroBatchesPerRank * (all - owned) * kCompute);
        EXPECT_EQ(at(o, r, "replicas.all_reduce"), owned * kState);
      }
    }
  }
}

TEST(Traffic, LocalAccumulationReducesOnceAStepWhateverTheMicroBatches) {
  Job job = job_on({.shard = 4}, plan::Strategy::full_shard);
  job.ordered = false;
  job.local_accumulation = true;
  const Outcome o = run(job);
  const Layouts layouts(job);
  for (int r = 0; r < 4; ++r)
    EXPECT_EQ(at(o, r, "reduce.reduce_scatter"),
              layouts.sum([&](const auto& l) { return (l.numel() - l.owned(r, 4).size()) * kState; }));
}

TEST(Traffic, TensorParallelBlocksAllReduceFourTimesAMicroBatch) {
  const Job job = job_on({.shard = 1, .tp = 2}, plan::Strategy::no_shard);
  const Outcome o = run(job);
  const int64_t tokens = job.shape.tokens(), width = job.model.hidden_size, layers = job.model.num_hidden_layers;
  const int64_t boundary = 2 * tokens * width * kCompute / 2;       // 2 n (t-1)/t at t = 2
  const int64_t cross_entropy = 2 * 3 * tokens * kState / 2;        // the maximum; the sum and the target's logit
  for (int r = 0; r < 2; ++r)
    EXPECT_EQ(at(o, r, "tp.all_reduce"), kMicroBatchesPerRank * ((4 * layers + 1 + 1) * boundary + cross_entropy));
}

TEST(Traffic, RecomputationRepeatsItsPartOfTensorParallelTraffic) {
  Job job = job_on({.shard = 1, .tp = 2}, plan::Strategy::no_shard);
  const int64_t plain = at(run(job), 0, "tp.all_reduce");
  job.recompute.mode = schedule::Recompute::full;
  // A block's last all_reduce makes its output, which recomputation does not need.
  const int64_t once = 2 * job.shape.tokens() * job.model.hidden_size * kCompute / 2;
  EXPECT_EQ(at(run(job), 0, "tp.all_reduce") - plain, kMicroBatchesPerRank * job.model.num_hidden_layers * once);
}

TEST(Traffic, SequenceParallelismHalvesEachAllReduceIntoAGatherAndAScatter) {
  Job job = job_on({.shard = 1, .tp = 2}, plan::Strategy::no_shard);
  job.sequence_parallel = true;
  const Outcome o = run(job);
  const int64_t tokens = job.shape.tokens(), width = job.model.hidden_size, layers = job.model.num_hidden_layers;
  const int64_t half = tokens * width * kCompute / 2;
  // Forward 2 gathers and 2 scatters a block; backward the mirror, and both normed inputs gathered again.
  // Embedding: 1 scatter forward, 1 gather backward. Head: 1 gather forward (in its backward pass), 1 scatter.
  EXPECT_EQ(at(o, 0, "tp.all_gather"), kMicroBatchesPerRank * half * (6 * layers + 2));
  EXPECT_EQ(at(o, 0, "tp.reduce_scatter"), kMicroBatchesPerRank * half * (4 * layers + 2));
}

TEST(Traffic, RingPassesKeysAndValuesAndTheirGradients) {
  for (int ranks : {2, 4}) {
    const Job job = job_on({.shard = 1, .cp = ranks}, plan::Strategy::no_shard);
    const Outcome o = run(job);
    const int64_t tokens = job.shape.tokens() / ranks;
    const int64_t kv = tokens * 2 * job.model.num_key_value_heads * job.model.head_dim;
    // Keys and values c-1 hops each way; their gradients, in the statistics dtype, come home after c hops.
    const int64_t block = (2 * (ranks - 1) * kCompute + ranks * kState) * kv;
    for (int r = 0; r < ranks; ++r)
      EXPECT_EQ(at(o, r, "cp.send"), kMicroBatchesPerRank * job.model.num_hidden_layers * block) << ranks;
  }
}

TEST(Traffic, UlyssesTurnsRowsIntoHeadsAndBack) {
  Job job = job_on({.shard = 1, .cp = 2}, plan::Strategy::no_shard);
  job.context = model::Context::ulysses;
  const Outcome o = run(job);
  const int64_t tokens = job.shape.tokens() / 2, d = job.model.head_dim;
  const int64_t q = tokens * job.model.num_attention_heads * d, kv = tokens * 2 * job.model.num_key_value_heads * d;
  // To heads and back, forward and backward; half of each stays. Gradients of keys and values, which copies of a head
  // may have to sum, travel in the statistics dtype.
  const int64_t block = (2 * (q + q) * kCompute + kv * kCompute + kv * kState) / 2;
  EXPECT_EQ(at(o, 0, "cp.all_to_all"), kMicroBatchesPerRank * job.model.num_hidden_layers * block);
}

TEST(Traffic, PipelineRanksSendEachBoundaryOnceEachWay) {
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
    Job job = job_on({.pp = 2, .shard = 1}, plan::Strategy::no_shard);
    job.pipeline.schedule = schedule;
    const Outcome o = run(job);
    const int64_t boundary = job.shape.tokens() * job.model.hidden_size * kCompute;
    EXPECT_EQ(at(o, 0, "activations.send"), kMicroBatchesPerRank * boundary);
    EXPECT_EQ(at(o, 1, "activations.receive"), kMicroBatchesPerRank * boundary);
    EXPECT_EQ(at(o, 1, "gradients.send"), kMicroBatchesPerRank * boundary);
    EXPECT_EQ(at(o, 0, "gradients.receive"), kMicroBatchesPerRank * boundary);
  }
}

TEST(Traffic, TiedWeightsOnTwoStagesAreSummedOnceAStep) {
  Job job = job_on({.pp = 2, .shard = 1}, plan::Strategy::no_shard);
  job.model.tie_word_embeddings = true;
  const Outcome o = run(job);
  const int64_t table = Layouts(job).sum([](const auto& l) { return l.name().starts_with("tied") ? l.numel() : 0; });
  EXPECT_EQ(at(o, 0, "tied.all_reduce"), table * kState);  // 2 n (2-1)/2
}

}  // namespace
}  // namespace trireme::engine
