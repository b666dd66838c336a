// Rules that join several settings. All are arithmetic on Settings and the number of ranks, so that every
// rank, and the launcher before there are ranks, comes to the same verdict.
#pragma once

#include "trireme/config/settings.h"

namespace trireme::config {

/// devices x num_nodes, devices being 1 when it is left to choose.
int64_t world_size(const Settings& settings);

/// Checks batch, mesh, strategy, data and learning rates against each other for `world_size` ranks.
/// Errors    UsageError with one "error: ..." paragraph for each broken rule, naming values that would work
void validate(const Settings& settings, int64_t world_size);

/// A training run must know when to stop: steps, tokens, epochs or time.
/// Errors    UsageError
void validate_run_length(const Settings& settings);

/// Micro-batches that each data-parallel rank computes before an optimizer step; after validate().
int64_t accumulation(const Settings& settings, int64_t world_size);

}  // namespace trireme::config
