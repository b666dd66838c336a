// The data of a run: the same on all ranks, and the same as before if the run is resumed.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/data/training_data.h"
#include "trireme/text/tokenizer.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/session.h"
#include "trireme/train/task.h"

namespace trireme::train {

/// If the settings choose no held-out part and the run of the checkpoint `resume` (empty: a new run) held out the last
/// part, this run does so too. Errors    CheckpointError
void keep_split(data::TrainingDataOptions& options, const std::filesystem::path& resume);

/// Loads the data that the settings name. If no tokens are cached, rank 0 tokenizes, and the others then find the
/// result. Every rank must call; `stops` is called once. Errors    UsageError; CheckpointError, the same on every rank
data::TrainingData load_run_data(Session& session, const std::filesystem::path& resume,
                                 const text::Tokenizer& tokenizer, const StopCheck& stops);

/// Puts the data's identity into `state`. The order of samples is a function of the data. So if the data changed, the
/// number of samples taken is meaningless, and the run begins at sample 0 of the new data.
///
/// @returns  what changed, as a line for the user; empty: nothing
/// Errors    UsageError if the data changed and data.on_change is refuse
std::string meet_data(const data::DataSettings& settings, const data::DataIdentity& data, RunState& state);

/// Puts the run's tokenizer beside the model, so that a checkpoint holds exactly the tokenizer that it was trained
/// with.
void keep_tokenizer(const Session& session, RunState& state);

}  // namespace trireme::train
