// Files of a run beside its checkpoints: numbers, events, profile, curve. One that cannot be written stops the run, or
// is told of (save.on_error).
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "trireme/base/files.h"
#include "trireme/checkpoint/settings.h"

namespace trireme::train {

/// Runs `write`. Returns the line to say if a file could not be written and the run goes on; else "".
/// Errors    FileError if it does not go on
template <typename Write>
std::string written_or_told(checkpoint::OnSaveError on_error, const Write& write) try {
  try {
    write();
  } catch (const std::filesystem::filesystem_error& error) {
    base::throw_file_error(error);
  }
  return "";
} catch (const base::FileError& error) {
  if (on_error == checkpoint::OnSaveError::stop) throw;
  return fmt::format("warn     {}; the run goes on without it (save.on_error continue)", error.what());
}

}  // namespace trireme::train
