// The commands that train: pretrain, and finetune_full, which has the defaults of fine-tuning.
#pragma once

#include <string_view>

#include "trireme/config/parse.h"
#include "trireme/settings/parse.h"

namespace trireme::cli {

/// Whether `trireme SUBCOMMAND` trains a model, and so can be stopped and resumed.
bool trains(std::string_view subcommand);

/// Sets what follows from the task of a run, and what its task says against other settings.
/// Errors    UsageError
void complete_task(ParsedSettings& parsed);

/// How the training command `subcommand` reads its settings.
config::Overlay training_overlay(std::string_view subcommand);

}  // namespace trireme::cli
