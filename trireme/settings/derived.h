// What follows from settings: a run's precision, its learning rates, and its mesh with every axis decided.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/processor.h"
#include "trireme/settings/settings.h"

namespace trireme {

/// `precision` itself. `auto` becomes bf16-mixed if `has_bf16`, else 32-true.
model::NumberFormat number_format(model::NumberFormat precision, bool has_bf16 = base::processor().multiplies_bf16());

/// The precision of a run.
model::NumberFormat number_format(const Settings& settings);

/// Whether a run scales its loss, and skips steps whose gradients overflow.
bool scales_loss(const Settings& settings);

/// The highest learning rate: optimizer.lr x (train.global_batch_size / optimizer.base_batch_size).
/// optimizer.lr_scaling says whether the ratio counts as it is (Goyal et al. 2017), as its square root (Krizhevsky
/// 2014), or not at all.
double scaled_lr(const Settings& settings);

/// The lowest learning rate: train.min_lr. If it is absent: a tenth of scaled_lr(), at most LitGPT's 6e-5, or what the
/// schedule's source has instead.
double lowest_lr(const Settings& settings);

/// train.lr_warmup_steps, or the schedule's own number.
int64_t warmup_steps(const Settings& settings);

/// Ranks along each axis, outer to inner; their product is the number of ranks.
struct MeshShape {
  int64_t pp = 1, replicate = 1, shard = 1, cp = 1, tp = 1;

  /// At most INT64_MAX.
  int64_t product() const;
  /// Ranks that read different data. Ranks of pp, cp and tp work together on the same sequences.
  int64_t data_parallel_ranks() const { return replicate * shard; }
  bool operator==(const MeshShape&) const = default;
};

/// Decides the axes left at `auto`. They become 1, except the axis of the strategy, which takes the rest of the ranks:
/// replicate for no_shard, shard for the other strategies. Hybrid strategies on several machines shard inside a machine
/// and replicate over machines; if one of the two axes is given, the other takes the rest. If the ranks do not divide
/// evenly, the product differs from `world_size`, and validate() refuses it.
MeshShape mesh_shape(const Settings& settings, int64_t world_size);

/// Pipeline stages on each rank: pipeline.chunks, or the schedule's own number; 1 without a pipeline.
int64_t stages_per_rank(const Settings& settings, const MeshShape& mesh);

/// Micro-batches of the busiest data-parallel rank in an optimizer step, for settings that validate() accepts. Of n
/// such ranks, rank i mod n computes micro-batch i. If the division leaves a rest, the last ranks have one less.
int64_t accumulation(const Settings& settings, int64_t world_size);

/// The same in words: "2 micro-batches", or "at most 2 micro-batches" if the last ranks have one less.
std::string describe_accumulation(const Settings& settings, int64_t world_size);

}  // namespace trireme
