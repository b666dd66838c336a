// Rules that join several settings. All are arithmetic on Settings and the number of ranks, so that every
// rank, and the launcher before there are ranks, comes to the same verdict.
#pragma once

#include <string>
#include <vector>

#include "trireme/config/settings.h"

namespace trireme::config {

/// devices x num_nodes, devices being 1 when it is left to choose.
int64_t world_size(const Settings& settings);

/// Checks batch, mesh, strategy, pipeline, sequence, data and learning rates against each other for `world_size`
/// ranks. What needs the model's shape, which a name stands for, is checked where the model is built.
/// Errors    UsageError with one "error: ..." paragraph for each broken rule, naming values that would work
void validate(const Settings& settings, int64_t world_size);

/// What a command that computes cannot use, though plans can be made with it: a backend that moves nothing.
/// Errors    UsageError
void validate_backend(const Settings& settings, int64_t world_size);

/// Refuses places to write to that cannot be written, before hours of work: out_dir, and the files of results.
/// Errors    UsageError
void validate_places(const Settings& settings);

/// A training run must know when to stop: steps, tokens, epochs or time.
/// Errors    UsageError
void validate_run_length(const Settings& settings);

/// What works but wastes time, or has no effect: a sentence each, for settings that validate() accepts.
std::vector<std::string> warnings(const Settings& settings, int64_t world_size);

/// Micro-batches of the busiest data-parallel rank before an optimizer step; after validate(). Where the global
/// batch does not divide, micro-batch i is computed by rank i mod n, and the last ranks have one less.
int64_t accumulation(const Settings& settings, int64_t world_size);

}  // namespace trireme::config
