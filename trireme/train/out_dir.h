// What lies in out_dir before a run begins: nothing, the run that it goes on with, or another run, which a new one must
// not mix with. Steps are numbered from 0 in each run, so a new one would replace some of the other's checkpoints and
// leave others, and whoever then asks for the newest would get the wrong run's.
#pragma once

#include <filesystem>

#include "trireme/config/settings.h"

namespace trireme::train {

/// Whether a run has left anything in `out_dir`: commands that only measure keep their records elsewhere.
bool holds_a_run(const std::filesystem::path& out_dir);

/// For a start that is no restart. With settings.overwrite only what the run starts from must not lie there.
///
/// Errors    UsageError where out_dir holds checkpoints that this run does not go on from
void refuse_another_runs_folder(const config::Settings& settings);

/// settings.overwrite: removes checkpoints, metrics, the loss curve, logs, flight records and ledgers of an earlier
/// run. Other files stay, and so does what links lead to.
///
/// Errors    FileError, CheckpointError naming what cannot be removed
void remove_earlier_run(const config::Settings& settings);

}  // namespace trireme::train
