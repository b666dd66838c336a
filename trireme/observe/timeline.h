// When each action of a step ran, on all ranks.
#pragma once

#include <filesystem>
#include <vector>

#include "trireme/engine/engine.h"

namespace trireme::observe {

/// Writes a measured timeline to `path`, with a row for each rank, as `explain schedule` draws the predicted one.
/// `mine`: this rank's times of a training step, such as Engine::timeline() right after one. The file is a picture if
/// its name ends in .svg, text for .txt, otherwise a Chrome trace. Every rank must call; rank 0 writes. Errors
/// FileError if the file cannot be written
void write_timeline(const model::Model& model, engine::Engine& engine, const std::vector<engine::ActionTime>& mine,
                    const std::filesystem::path& path);

}  // namespace trireme::observe
