// The commands that train: pretrain, and finetune_full, which has the defaults of fine-tuning.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/config/parse.h"
#include "trireme/settings/parse.h"

namespace trireme::cli {

/// Whether `trireme SUBCOMMAND` trains a model, and so can be stopped and resumed.
bool trains(std::string_view subcommand);

/// Refuses settings that a run with these settings would not read: of adapters without adapters, of an adapter that has
/// a configuration of its own, of another task. For commands that show or time a run; complete_task() does it, too.
/// Call it after take_over_run().
/// Errors    UsageError
void refuse_unread(const ParsedSettings& parsed);
/// The same without what adapters say: their rank may be a training command's own.
void refuse_other_tasks(const ParsedSettings& parsed);

/// Refuses data that a resumed run names and that are not there, as a relative path may be in another folder.
/// Errors    UsageError
void refuse_data_that_is_elsewhere(const ParsedSettings& parsed);

/// Sets what follows from the task of a run, and what its task says against other settings.
/// Errors    UsageError
void complete_task(ParsedSettings& parsed);
/// The same for commands that only plan: as in a dry run, no data are read if settings say what is asked of them.
void complete_plan(ParsedSettings& parsed);

/// Groups of settings that only commands about training read, for config::Overlay::unread_groups.
std::vector<std::string_view> groups_of_training();

/// How the training command `subcommand` reads its settings.
config::Overlay training_overlay(std::string_view subcommand);

}  // namespace trireme::cli
