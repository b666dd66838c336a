// What a rank that trireme launch has started knows: its place, where the others meet, and the settings on the command
// line (--strategy, --mesh.tp, --mesh.sequence_parallel, --comm.backend, ...; trireme --help explains them). A program
// that nobody launched is one rank.
#pragma once

#include <ATen/Parallel.h>

#include <optional>
#include <string>
#include <vector>

#include "trireme/engine/trainer.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/parse.h"
#include "trireme/train/failure.h"
#include "trireme/train/ranks.h"

namespace parallel_example {

struct Launched {
  Launched(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    const trireme::Settings settings = trireme::parse_settings(words).settings;
    const trireme::launch::RankEnvironment environment = trireme::launch::rank_environment();
    at::set_num_threads(1);  // the models are too small to share
    options.ranks.rank = environment.global_rank;
    options.ranks.size = environment.world_size;
    const trireme::MeshShape mesh = trireme::mesh_shape(settings, environment.world_size);
    options.mesh = {.pp = int(mesh.pp),
                    .replicate = int(mesh.replicate),
                    .shard = int(mesh.shard),
                    .cp = int(mesh.cp),
                    .tp = int(mesh.tp)};
    (void)trireme::tensor_ranks(options);  // refuses a mesh that does not fit, on every rank, before they meet
    options.sequence_parallel = settings.mesh.sequence_parallel;
    options.strategy = settings.strategy;
    options.pipeline = settings.pipeline;
    if (environment.world_size == 1) return;
    meeting = trireme::train::meet(settings, environment);
    options.ranks = meeting->options;
    options.ranks.rank = environment.global_rank;
    options.ranks.size = environment.world_size;
  }

  bool speaks() const { return options.ranks.rank == 0; }

  std::optional<trireme::train::RankMeeting> meeting;  ///< rank 0 serves the others as long as it lives
  trireme::TrainerOptions options;
};

}  // namespace parallel_example
