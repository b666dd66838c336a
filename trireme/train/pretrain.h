// Pretraining: a task (train/task.h) that learns to continue text, in samples of whole sequences.
#pragma once

#include <string_view>

#include "trireme/launch/identity/environment.h"
#include "trireme/settings/settings.h"

namespace trireme::train {

/// Checks model, sequence, data and the checkpoint to resume from, before ranks start.
/// Errors    UsageError, CheckpointError
void check_pretrain(const Settings& settings);

/// A command that trains a model further needs its weights: a folder with *.safetensors, or a run to resume.
/// Errors    UsageError
void check_has_weights(const Settings& settings, std::string_view subcommand);

/// Trains until the run's end or a stop signal, saves, and returns the exit code: 0, or 75 if it was stopped early and
/// can be resumed. Every rank must call. Errors    UsageError, CheckpointError, CommError
int pretrain(const Settings& settings, const launch::RankEnvironment& environment);

}  // namespace trireme::train
