// Checkpoints of a Trainer (engine/trainer.h): weights, optimizer state, the number of steps and the loss scale. Any
// mesh continues them. They hold no buffers (BatchNorm's statistics), no frozen parameters and no state of random
// generators.
//
//     trireme::load_trainer(trainer, "out");                  // does nothing before the first save
//     for (int64_t step = trainer.steps(); step < 1000; ++step) {
//       ...                                                   // backward() with the batches of this step
//       trainer.step(1e-3);
//       if (trainer.steps() % 100 == 0) trireme::save_trainer(trainer, "out");
//     }
#pragma once

#include <filesystem>
#include <optional>

#include "trireme/checkpoint/settings.h"
#include "trireme/engine/trainer.h"

namespace trireme::train {

/// Saves FOLDER/step-00000100 after 100 steps, and keeps the newest `keep_last` checkpoints there; 0: all. Collective.
/// A trainer that went back to an older checkpoint leaves the later ones behind: they stay, but never count as the
/// newest. Rank 0 warns of them.
/// @returns  the checkpoint's own folder
/// Errors    as checkpoint::save_checkpoint; CheckpointError if `folder` is a file; UsageError if it has no name or
///           holds checkpoints of another model, or `keep_last` is below 0
std::filesystem::path save_trainer(engine::Trainer& trainer, const std::filesystem::path& folder,
                                   int64_t keep_last = checkpoint::SaveSettings{}.keep_last);

/// Goes on from the newest good checkpoint in `folder`, or from `folder` if it is a checkpoint itself. Collective. If
/// reading ends with an error, the trainer has a part of the checkpoint: it refuses all but another load_trainer.
/// @returns  the checkpoint's own folder; nothing if there is none yet
/// Errors    CheckpointError, the same on every rank: of another model or optimizer; there are checkpoints, but none is
///           good; `folder` is a file, or a missing one with a checkpoint's name or beside checkpoints
std::optional<std::filesystem::path> load_trainer(engine::Trainer& trainer, const std::filesystem::path& folder);

}  // namespace trireme::train

namespace trireme {
using train::load_trainer;
using train::save_trainer;
}  // namespace trireme
