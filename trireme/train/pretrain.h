// The training loop of one rank.
#pragma once

#include "trireme/config/settings.h"
#include "trireme/launch/environment.h"

namespace trireme::train {

/// What can be refused before any process starts: model, sequence, data, the checkpoint to resume from.
/// Errors    UsageError, CheckpointError
void check_pretrain(const config::Settings& settings);

/// Trains until the run's end or a stop signal, saves, and returns the exit code: 0, or 75 when stopped early
/// (resumable). Every rank calls it.
/// Errors    UsageError, CheckpointError, CommError
int pretrain(const config::Settings& settings, const launch::RankEnvironment& environment);

}  // namespace trireme::train
