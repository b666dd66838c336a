// A resumed run takes its settings from its checkpoint, unless the user gives others. It does not take over settings of
// where, and on how many ranks, a run computes, because any number of ranks can continue any checkpoint. These settings
// come from the command line, a file, the environment or their defaults, as for a new run.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/settings/parse.h"

namespace trireme {

/// Fills in the settings of `saved_yaml` (from to_yaml) that the user did not give. Messages call the checkpoint
/// `place`. If the user changes the name of the model, data or optimizer, none of its settings is taken over. If the
/// user gives one of the settings that end a run (train.max_steps, max_tokens, epochs, max_time), none of these is
/// taken over. Details of a schedule, a precision or a scale rule are not taken over beside another one, nor a path
/// beside a data.mixture, nor the other way round. Keys that no longer exist are skipped.
///
/// Errors    UsageError if a saved value is no longer allowed
void take_over(ParsedSettings& parsed, const std::string& saved_yaml, const std::string& place);

/// The settings of the run that saved `saved_yaml`. Keys that no longer exist, and values that are no longer allowed,
/// are skipped.
Settings settings_in(const std::string& saved_yaml);

/// What a command must give again to go on from the checkpoint of `saved_yaml` as `now`: accelerator, strategy, mesh
/// and pipeline where they are not their defaults, and what affects learning and is otherwise in the checkpoint. Keys
/// and values, as the command line takes them.
std::vector<std::pair<std::string, std::string>> to_give_again(const std::string& saved_yaml, const Settings& now);

/// A line for each setting that has changed and affects what is learned: "train.global_batch_size was 64, is 32 now".
std::vector<std::string> changes_since(const std::string& saved_yaml, const Settings& now);

}  // namespace trireme
