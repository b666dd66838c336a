// When each action of the last step ran, on all ranks.
#pragma once

#include <filesystem>

#include "trireme/engine/engine.h"

namespace trireme::observe {

/// Writes the measured timeline of the engine's last step to `path`, with a row for each rank, as `explain schedule`
/// draws the predicted one. The file is a picture if its name ends in .svg, text for .txt, otherwise a Chrome trace.
/// Every rank must call; rank 0 writes.
/// Errors    FileError if the file cannot be written
void write_timeline(const model::Model& model, engine::Engine& engine, const std::filesystem::path& path);

}  // namespace trireme::observe
