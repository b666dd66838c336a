// Turns a command line into Settings, and Settings into text: applies trireme/config/ to the table of all sections.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/parse.h"
#include "trireme/settings/settings.h"

namespace trireme {

struct ParsedSettings : config::Parsed {
  Settings settings;
};

/// Errors    UsageError as config::parse
ParsedSettings parse_settings(std::span<const std::string> arguments, const config::Overlay& overlay = {});

/// Whether `word` names a setting, as in train.max_steps, or a group of them.
bool is_setting(const std::string& word);

/// What --help prints; `words` is as in config::help_text. The command's `overlay` has its own
/// defaults, its section and the other systems.
std::string help_text(const std::vector<std::string>& words = {}, const config::Overlay& overlay = {});

/// All of docs/settings.md.
std::string settings_reference_markdown();

/// One line per setting: key, value, where it came from.
std::string explain(const ParsedSettings& parsed);

/// The settings that are given in any way, as YAML that --config reads back.
std::string given_yaml(const ParsedSettings& parsed);

/// All settings, as config::to_yaml and config::to_json write them.
std::string to_yaml(const Settings& settings);
std::string to_json(const Settings& settings);

}  // namespace trireme
