#include "trireme/config/validate_parallel.h"

#include <fmt/format.h>

#include <numeric>

#include "trireme/base/text.h"
#include "trireme/config/choices.h"

namespace trireme::config {

namespace {

std::string_view on_one_copy(Strategy strategy) {
  return strategy == Strategy::hybrid_shard ? "full_shard" : "shard_grad_op";
}

void check_copies(const Settings& settings, const MeshShape& mesh, Problems& problems) {
  const std::string_view name = name_of(settings.strategy);
  const bool left_open = !settings.mesh.replicate && !settings.mesh.shard;
  if (settings.strategy == Strategy::no_shard) {
    if (mesh.shard == 1) return;
    problems.add(fmt::format("no_shard keeps all weights on every rank, but mesh.shard is {}", mesh.shard), {},
                 "take strategy full_shard, or mesh.replicate instead of mesh.shard");
  } else if (!is_hybrid(settings.strategy)) {
    if (mesh.replicate == 1) return;
    problems.add(
        fmt::format("{} keeps one copy of the state over all ranks, but mesh.replicate is {}", name, mesh.replicate),
        {},
        fmt::format("take strategy {}, or leave mesh.replicate and mesh.shard at auto",
                    settings.strategy == Strategy::full_shard ? "hybrid_shard" : "hybrid_shard_zero2"));
  } else if (left_open && settings.num_nodes == 1) {
    problems.add(fmt::format("{} on one machine cannot tell how many copies of the weights to keep", name), {},
                 fmt::format("give mesh.replicate, for instance 2, or mesh.shard; {} keeps one copy",
                             on_one_copy(settings.strategy)));
  } else if (mesh.replicate == 1) {
    problems.add(fmt::format("{} keeps several copies of the weights, but mesh.replicate comes to 1", name), {},
                 fmt::format("take strategy {}, or a mesh.replicate above 1", on_one_copy(settings.strategy)));
  }
}

void check_pipeline(const Settings& settings, const MeshShape& mesh, Problems& problems) {
  if (mesh.pp == 1) return;  // whatever pipeline.* says, there is no pipeline
  const PipelineSettings& pipeline = settings.pipeline;
  const int64_t stages = mesh.pp * stages_per_rank(settings, mesh);
  const auto& layers = settings.model.num_hidden_layers;
  if (layers && stages > *layers + 2) {
    problems.add(
        fmt::format("a pipeline of {} cannot be cut from {} (embedding, {}, head)", base::plural(stages, "stage"),
                    base::plural(*layers + 2, "unit"), base::plural(*layers, "block")),
        {}, fmt::format("mesh.pp x the stages on each rank must not exceed {}", *layers + 2));
  }
  if (pipeline.split && static_cast<int64_t>(pipeline.split->size()) != stages) {
    problems.add(fmt::format("pipeline.split names {}, but the pipeline has {}",
                             base::plural(static_cast<int64_t>(pipeline.split->size()), "stage"), stages),
                 {}, fmt::format("give {} numbers: mesh.pp {} x {} on each rank", stages, mesh.pp, stages / mesh.pp));
  } else if (pipeline.split && layers) {
    const int64_t sum = std::accumulate(pipeline.split->begin(), pipeline.split->end(), int64_t{0});
    if (sum != *layers + 2) {
      problems.add(fmt::format("pipeline.split adds up to {}, but the model has {}", sum, *layers + 2), {},
                   fmt::format("units are the embedding, {} and the head", base::plural(*layers, "block")));
    }
  }
  const TrainSettings& train = settings.train;
  const int64_t round = train.micro_batch_size * mesh.data_parallel_ranks() * mesh.pp;
  if (pipeline.schedule == "interleaved_1f1b" && train.global_batch_size % train.micro_batch_size == 0 &&
      train.global_batch_size % round != 0) {
    problems.add(
        fmt::format("interleaved_1f1b runs micro-batches in rounds of mesh.pp {} on each of {}, and the "
                    "step's {} are not whole rounds",
                    mesh.pp, base::plural(mesh.data_parallel_ranks(), "data-parallel rank"),
                    train.global_batch_size / train.micro_batch_size),
        {},
        fmt::format("train.global_batch_size {} fits; pipeline.schedule 1f1b and breadth_first take any number",
                    near_multiples(train.global_batch_size, round)));
  }
}

void check_sequence(const Settings& settings, const MeshShape& mesh, Problems& problems) {
  if (settings.mesh.sequence_parallel && mesh.tp == 1) {
    problems.add("mesh.sequence_parallel shares tokens among the ranks of mesh.tp, which is 1", {},
                 "set mesh.tp above 1; mesh.cp shares a sequence without tensor parallelism");
  }
  const std::optional<int64_t> sequence =
      settings.train.max_seq_length ? settings.train.max_seq_length : settings.model.max_position_embeddings;
  if (!sequence) return;
  const bool ring = settings.mesh.context == Context::ring;
  const int64_t pieces = mesh.cp == 1 ? 1 : ring ? 2 * mesh.cp : mesh.cp;
  if (*sequence % pieces != 0) {
    problems.add(fmt::format("{} cannot share a sequence of {} tokens: mesh.context {} cuts it into {} equal pieces",
                             base::plural(mesh.cp, "rank"), *sequence, name_of(settings.mesh.context), pieces),
                 {}, fmt::format("train.max_seq_length {} fits", near_multiples(*sequence, pieces)));
    return;
  }
  const int64_t tokens = settings.train.micro_batch_size * *sequence / mesh.cp;
  if (settings.mesh.sequence_parallel && tokens % mesh.tp != 0) {
    problems.add(fmt::format("mesh.sequence_parallel cannot share the {} tokens of a micro-batch among {}", tokens,
                             base::plural(mesh.tp, "rank")),
                 {}, "train.micro_batch_size x train.max_seq_length / mesh.cp must be a multiple of mesh.tp");
  }
}

void check_groups(const WrapSettings& wrap, Problems& problems) {
  if (!wrap.units || (wrap.by == WrapBy::block && wrap.min_num_params == 0)) return;
  problems.add("wrap.units names whole units, which wrap.by and wrap.min_num_params would cut or join otherwise", {},
               "leave wrap.by at block and wrap.min_num_params at 0, or leave wrap.units out");
}

}  // namespace

std::string near_multiples(int64_t number, int64_t unit) {
  const int64_t below = number / unit * unit;
  return below == 0 ? fmt::format("{}", unit) : fmt::format("{} or {}", below, below + unit);
}

void check_mesh(const Settings& settings, const MeshShape& mesh, int64_t world_size, Problems& problems) {
  if (mesh.product() != world_size) {
    problems.add(fmt::format("a mesh of pp {} x replicate {} x shard {} x cp {} x tp {} is {}, but {} start", mesh.pp,
                             mesh.replicate, mesh.shard, mesh.cp, mesh.tp, base::plural(mesh.product(), "rank"),
                             base::plural(world_size, "rank")),
                 {}, "set devices to the product, or leave mesh.replicate and mesh.shard at auto");
  }
  check_copies(settings, mesh, problems);
}

void check_parallel(const Settings& settings, const MeshShape& mesh, Problems& problems) {
  check_pipeline(settings, mesh, problems);
  check_sequence(settings, mesh, problems);
  check_groups(settings.wrap, problems);
  if (settings.accumulation == Accumulation::local && settings.reduce == Reduce::ordered) {
    problems.add(
        "accumulation local sums a rank's micro-batches before those of other ranks, which reduce ordered cannot allow",
        {}, "set reduce fast, or accumulation sharded");
  }
}

}  // namespace trireme::config
