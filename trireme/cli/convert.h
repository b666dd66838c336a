// The conversion that `trireme convert` and `trireme merge_lora` share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/settings/parse.h"

namespace trireme::cli {

/// Reads the settings of a conversion by `command`. The first of `words` may be its source, without a name. `defaults`
/// count less than what the user says anywhere.
ParsedSettings read_conversion(std::vector<std::string> words, std::string command,
                               std::vector<std::pair<std::string, std::string>> defaults = {});

/// Converts, and prints what became of it.
/// Errors    UsageError and CheckpointError naming the file; launch::Stopped
void convert(const checkpoint::ConvertSettings& settings);

}  // namespace trireme::cli
