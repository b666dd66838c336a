// Classification: a task (train/task.h) that learns which label a text has (docs/classification.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "trireme/settings/parse.h"
#include "trireme/train/task.h"

namespace trireme::train {

/// Sets what follows from the task classify: the labels, if neither the settings nor the model's folder have them, and
/// defaults that suit texts. Changes nothing for another task.
///
/// Cost      may read the training texts once
/// Errors    UsageError: as data::labels_of; a head with another number of labels; settings that have no meaning here
void complete_classification(ParsedSettings& parsed);

/// Tokens of the longest text that such a model reads whole, if nobody says how many.
int64_t default_text_tokens(const model::ModelConfig& model);
/// The token that is left out at the end of a text (data::TextEncoder); nothing for encoders.
std::optional<int64_t> padding_at_ends(const model::ModelConfig& model);

/// As MakeTask.
std::unique_ptr<Task> make_classification(Session& session, const std::filesystem::path& resume,
                                          const StopCheck& stops);

/// Reads and tokenizes the data of a run that classifies, before ranks start.
/// Errors    UsageError
data::TrainingData check_classification(const Settings& settings, const model::ModelConfig& model,
                                        const text::Tokenizer& tokenizer);

}  // namespace trireme::train
