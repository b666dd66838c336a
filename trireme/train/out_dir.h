// What out_dir holds before a run begins, and which run its checkpoints belong to. Steps are numbered from 0 in each
// run, so a new run in another run's folder would replace some of its checkpoints and leave others; "the newest
// checkpoint" could then be of the wrong run. All attempts of a run share a name: a restart goes on from its own run's
// checkpoints, not from those of an earlier run, or of an abandoned branch, in the same folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/settings/settings.h"

namespace trireme::train {

// Inside out_dir, where LitGPT has them: TensorBoard's events, and the table.
inline constexpr const char* kEventsFolder = "logs/tensorboard/version_0";
inline constexpr const char* kCsvFile = "logs/csv/version_0/metrics.csv";
/// Texts that are cut, and what the reference model says of them.
inline constexpr const char* kTokensFolder = "tokens";

/// train.run_name; without one as LitGPT has it: "pretrain-llama-5m", or "finetune-" and the name of the folder that
/// the weights are from.
std::string run_name(const Settings& settings);

/// Whether a run has left anything in `out_dir`. Commands that only measure keep their records elsewhere.
bool holds_a_run(const std::filesystem::path& out_dir);

/// Beside checkpoints, a model's folder would mean the model to some commands, and the newest checkpoint to others.
/// Comes before anything is written there.
///
/// Errors    UsageError if out_dir holds the files of a model and no checkpoint
void refuse_models_folder(const std::filesystem::path& out_dir);

/// Refuses an out_dir among the files of data: those of the run would be read with them.
/// Errors    UsageError naming the setting
void refuse_folder_of_data(const Settings& settings);

/// For a start that is not a restart. With settings.overwrite, refuses only if out_dir holds what the run starts from.
///
/// Errors    UsageError if out_dir holds checkpoints that this run does not continue from, or if launch.log_link has a
///           name of the run's own
void refuse_another_runs_folder(const Settings& settings);

/// With settings.overwrite: removes checkpoints, metrics, events, the loss curve, logs, flight records and ledgers of
/// an earlier run. Other files stay, and so do the targets of links.
///
/// Errors    FileError, CheckpointError naming what cannot be removed
void remove_earlier_run(const Settings& settings);

/// Removes the flight records of an earlier job, for a run of one rank, which writes none: trireme report hang would
/// speak of that job. The targets of links stay.
void remove_earlier_flights(const std::filesystem::path& out_dir);

/// The name of this run, the same on every rank, kept in out_dir/run.json. It is the launcher's name for the run;
/// without one, the name that the attempt before a restart used, or a new one. Every rank must call.
std::string begin_run(const std::filesystem::path& out_dir, const launch::RankEnvironment& environment,
                      comm::Communicator& world);

/// If the launcher names no run: removes the name that an earlier run left in out_dir, so that a restart before
/// begin_run() does not use it. Called first of all, on rank 0 of the first attempt.
void forget_earlier_run(const std::filesystem::path& out_dir, const launch::RankEnvironment& environment);

/// The checkpoint that a restart continues from: the newest good one in out_dir that its own run saved; if `before` is
/// given, the newest one older than that checkpoint.
std::optional<std::filesystem::path> find_saved_by_this_run(const std::filesystem::path& out_dir,
                                                            const launch::RankEnvironment& environment,
                                                            const std::filesystem::path& before = {});

}  // namespace trireme::train
