// Grpo: a task (train/task.h) that learns from rewards for its own answers (docs/rewards.md). Before a step, the model
// answers a batch of prompts, if the answers of an earlier rollout are used up; then some optimizer steps learn from
// them.
#pragma once

#include <filesystem>
#include <memory>

#include "trireme/settings/parse.h"
#include "trireme/text/tokenizer.h"
#include "trireme/train/task.h"

namespace trireme::train {

/// Sets what follows from the task rewards: rows of a step, their length, no dropout. Changes nothing for another task.
/// Errors    UsageError: settings that have no meaning here
void complete_grpo(ParsedSettings& parsed);

/// Of the task rewards: rows of a step as train.global_batch_size, which follow from grpo.* and the length of rows, and
/// a train.micro_batch_size of no more.
void set_rows(Settings& settings);

/// As MakeTask.
std::unique_ptr<Task> make_grpo(Session& session, const std::filesystem::path& resume, const StopCheck& stops);

/// Reads the prompts and makes the rewards, before ranks start.
/// Errors    UsageError
void check_grpo(const Settings& settings, const text::Tokenizer& tokenizer);

}  // namespace trireme::train
