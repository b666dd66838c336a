// Preferences: a task (train/task.h) that learns which of two replies is the better one (docs/preferences.md).
#pragma once

#include <filesystem>
#include <memory>

#include "trireme/settings/parse.h"
#include "trireme/train/task.h"

namespace trireme::train {

/// Sets what follows from the task preferences, and defaults that suit pairs: no dropout, as TRL has it. Changes
/// nothing for another task.
/// Errors    UsageError: settings that have no meaning here
void complete_preferences(ParsedSettings& parsed);

/// As MakeTask. Computes the reference's log-probabilities if the loss needs them (references.h).
std::unique_ptr<Task> make_preferences(Session& session, const std::filesystem::path& resume, const StopCheck& stops);

/// Reads and tokenizes the pairs, before ranks start, and looks at the reference's folder.
/// Errors    UsageError, CheckpointError
data::TrainingData check_preferences(const Settings& settings, const model::ModelConfig& model,
                                     const text::Tokenizer& tokenizer);

}  // namespace trireme::train
