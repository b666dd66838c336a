// Commands that name a run: where that run lies, and with which settings it continues. The launcher, every rank and
// `trireme explain` call this before they use the settings.
#pragma once

#include <filesystem>
#include <string>

#include "trireme/settings/parse.h"

namespace trireme::train {

/// If the command names a run (by `resume FOLDER`, or as its first word with `resume true` or `auto`) and no out_dir,
/// the run continues in its own out_dir. Called before anything looks into out_dir.
///
/// Errors    UsageError if overwrite would remove the run that is to be resumed; with `owns_out_dir` (a command that
///           writes there), for a checkpoint that was renamed and so tells no run
void place_run(ParsedSettings& parsed, bool owns_out_dir = false);

/// Takes over the settings of the checkpoint that is resumed. If the folders of its model and tokenizer are gone, both
/// are read from the checkpoint. If the model or a reference is a run's folder, the newest checkpoint in it is meant. A
/// new run that begins with an adapter, and names no other reference, gets this adapter as its reference.
///
/// Errors    as find_resume; CheckpointError if the checkpoint does not contain its settings; UsageError for another
///           task or optimizer, and for adapters of a run that trains all weights
void take_over_run(ParsedSettings& parsed);

/// "trireme pretrain --resume out/mine --devices 2 --mesh.tp 2": the command that continues a run with these settings,
/// and with what the newest good checkpoint does not keep of them. Of several machines, words for what was typed there.
std::string how_to_go_on(const Settings& settings);

/// How a new run begins from the weights of a checkpoint of a model or an adapter, in words.
std::string how_to_begin_from(const std::filesystem::path& checkpoint);

}  // namespace trireme::train
