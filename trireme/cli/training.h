// The commands that train: pretrain, and finetune_full, which has the defaults of fine-tuning.
#pragma once

#include <string_view>

#include "trireme/config/parse.h"

namespace trireme::cli {

/// Whether `trireme SUBCOMMAND` trains a model, and so can be stopped and resumed.
bool trains(std::string_view subcommand);

/// How the training command `subcommand` reads its settings.
config::Overlay training_overlay(std::string_view subcommand);

}  // namespace trireme::cli
