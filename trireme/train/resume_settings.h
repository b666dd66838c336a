// What a command that names a run means: where that run lies, and with which settings it goes on. Called by everybody
// who then reads the settings: the launcher, every rank, `trireme explain`.
#pragma once

#include "trireme/config/parse.h"

namespace trireme::train {

/// A run that is named goes on in its own out_dir, where no other is given: by `resume FOLDER`, or as the first word
/// with `resume true` or `auto`. Called before anything in out_dir is looked at.
///
/// Errors    UsageError where overwrite would remove what is to be resumed
void place_run(config::ParsedSettings& parsed);

/// Takes the settings of the checkpoint that is resumed (config/take_over.h). Its model and tokenizer lie in it too:
/// they are read there where the folders that the run began with are gone. A model that is a run's folder is the
/// newest checkpoint in it.
///
/// Errors    as find_resume; CheckpointError where the checkpoint does not say its settings
void take_over_run(config::ParsedSettings& parsed);

/// "trireme pretrain --resume out/mine --devices 2": the command that goes on with a run of these settings.
std::string how_to_go_on(const config::Settings& settings);

}  // namespace trireme::train
