// Reads a command's settings. It accepts Trireme's names and files, and those of other systems
// (trireme/dialects/).
#pragma once

#include <string>
#include <vector>

#include "trireme/cli/command.h"
#include "trireme/settings/parse.h"

namespace trireme::cli {

/// Errors    UsageError as parse_settings; with dry_run, for a command that would do its work all the same
ParsedSettings read_settings(Arguments arguments, config::Overlay overlay);

/// Refuses files of settings that can be read only once, as /dev/stdin and pipes: other processes read them too.
/// Errors    UsageError naming the file
void require_files_for_all(const config::Parsed& parsed);

/// Tells once what became of the settings of another system's file.
void say_what_was_read(const std::vector<config::Account>& accounts);

/// The part of --help about settings. `words` is as in help_text; `overlay` is the command's.
std::string settings_help(const std::vector<std::string>& words, config::Overlay overlay = {});

}  // namespace trireme::cli
