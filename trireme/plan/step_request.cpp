#include "trireme/plan/step_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::plan {

using comm::Axis;

model::Parallel StepRequest::parallel() const {
  return {.tp_rank = coordinate(Axis::tp),
          .tp_size = size(Axis::tp),
          .sequence_parallel = sequence_parallel,
          .cp_rank = coordinate(Axis::cp),
          .cp_size = size(Axis::cp),
          .context = context};
}

int StepRequest::num_shards() const { return strategy == Strategy::no_shard ? 1 : size(Axis::shard) * size(Axis::cp); }

int StepRequest::shard_index() const {
  return strategy == Strategy::no_shard ? 0 : coordinate(Axis::shard) * size(Axis::cp) + coordinate(Axis::cp);
}

int StepRequest::num_replicas() const {
  const int all = size(Axis::replicate) * size(Axis::shard) * size(Axis::cp);
  return all / num_shards();
}

int StepRequest::replica_index() const {
  if (strategy != Strategy::no_shard) return coordinate(Axis::replicate);
  return (coordinate(Axis::shard) * size(Axis::cp) + coordinate(Axis::cp)) * size(Axis::replicate) +
         coordinate(Axis::replicate);
}

bool StepRequest::whole_gradients() const {
  return strategy == Strategy::no_shard || strategy == Strategy::zero1 || num_shards() == 1;
}

int StepRequest::num_data_ranks() const { return size(Axis::replicate) * size(Axis::shard); }

// Shards outside, replicas inside: the order in which direct exchange folds gradients (rank_groups().reduce).
int StepRequest::data_index() const {
  return coordinate(Axis::shard) * size(Axis::replicate) + coordinate(Axis::replicate);
}

StepRequest StepRequest::of_rank(int other) const {
  StepRequest r = *this;
  r.rank = other;
  return r;
}

void check_request(const StepRequest& r) {
  const auto refuse = [](const std::string& text) { throw UsageError(text); };
  if (r.local_accumulation && r.ordered)
    refuse(
        "accumulation local sums each rank's micro-batches by themselves, which reduce ordered cannot keep in the "
        "order "
        "of one rank; set reduce fast, or accumulation sharded");
  const int64_t tokens = r.shape.tokens() / r.size(Axis::cp);
  if (r.sequence_parallel && tokens % r.size(Axis::tp) != 0)
    refuse(
        fmt::format("sequence parallelism cannot divide the {} tokens of a micro-batch among {} tensor-parallel ranks; "
                    "choose train.micro_batch_size x train.max_seq_length / mesh.cp a multiple of mesh.tp",
                    tokens, r.size(Axis::tp)));
  if (r.documents.attention && r.size(Axis::cp) > 1 && r.context == model::Parallel::Context::ring)
    refuse(
        "data.reset_attention_mask keeps attention inside documents, which ring attention cannot; use "
        "--mesh.context ulysses");
}

int index_in(const std::vector<int>& group, int rank) {
  return static_cast<int>(std::find(group.begin(), group.end(), rank) - group.begin());
}

RankGroups rank_groups(const StepRequest& r) {
  const comm::ProcessMesh& mesh = r.mesh;
  RankGroups g;
  const bool sharded = r.strategy != Strategy::no_shard;
  if (sharded) {
    g.gather = mesh.group(r.rank, {Axis::shard, Axis::cp});
    g.replicas = mesh.group(r.rank, {Axis::replicate});
  } else {
    g.gather = g.replicas = {r.rank};
  }
  if (r.ordered || r.whole_gradients()) {
    // Every data rank, shards outside and replicas inside: slices nest in the shards, and the fold is in the order
    // of the micro-batches.
    g.reduce = mesh.group(r.rank, {Axis::replicate, Axis::shard, Axis::cp});
    std::stable_sort(g.reduce.begin(), g.reduce.end(), [&](int a, int b) {
      const auto key = [&](int rank) {
        const auto c = mesh.coordinates(rank);
        return std::pair(c[static_cast<int>(Axis::shard)], c[static_cast<int>(Axis::cp)]);
      };
      return key(a) < key(b);
    });
  } else {
    g.reduce = g.gather;
  }
  g.loss = mesh.group(r.rank, {Axis::pp, Axis::replicate, Axis::shard, Axis::cp});
  g.stages = mesh.group(r.rank, {Axis::pp});
  g.tp = mesh.group(r.rank, {Axis::tp});
  g.cp = mesh.group(r.rank, {Axis::cp});
  return g;
}

}  // namespace trireme::plan
