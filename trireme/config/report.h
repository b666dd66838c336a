// Settings as text for people and files: help, the reference page, the resolved values. All are loops over
// the declaration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/parse.h"

namespace trireme::config {

/// What --help prints: for each setting its type, unit, default, allowed values and a line of explanation.
/// `words` picks groups ("train", "model", ... and "run" for the first one) and single settings by their keys; empty:
/// all. `section` as the command's Overlay has it: its settings' short names are shown beside the keys.
/// Errors    UsageError for what is neither
std::string help_text(const std::vector<std::string>& words = {}, std::string_view section = {});

/// docs/settings.md, whole.
std::string settings_reference_markdown();

/// One line per setting: key, value, where it came from. `trireme explain config` prints it.
std::string explain(const ParsedSettings& parsed);

/// Every setting as a YAML tree that `--config` reads back to equal Settings.
std::string to_yaml(const Settings& settings);

/// Every setting as a JSON object with dotted keys; numbers are numbers, times are seconds, sizes are bytes,
/// what is not given is null.
std::string to_json(const Settings& settings);

}  // namespace trireme::config
