// `trireme generate`: text from a checkpoint, streamed as it is drawn.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "trireme/config/settings.h"
#include "trireme/model/generator.h"

namespace trireme::train {

/// Reads a checkpoint (or the newest one of a run's folder, or a Hugging Face folder) into a generator.
/// Errors    CheckpointError, UsageError
std::unique_ptr<model::Generator> open_generator(const std::filesystem::path& folder,
                                                 const model::Precision& precision);

/// Writes prompt and continuation through `write`, whole characters at a time. Returns the exit code.
int generate(const config::Settings& settings, const std::function<void(std::string_view)>& write);

}  // namespace trireme::train
