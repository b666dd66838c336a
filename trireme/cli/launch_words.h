// The options of `trireme launch`: those of torchrun (launch_variables.h). Most of them are also settings of the group
// launch.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/cli/command.h"
#include "trireme/settings/parse.h"

namespace trireme::cli {

struct LaunchWords {
  Settings settings;  ///< devices, num_nodes, out_dir and launch
  std::optional<std::string> log_dir;
  std::vector<std::string> program;  ///< a subcommand of trireme or a program, and its arguments
  std::vector<std::string> options;  ///< those given, to repeat them on another machine: {"--max_restarts", "3"}
  bool gives_devices = false, gives_nodes = false;  ///< --nproc_per_node is typed; --nnodes is typed
  std::vector<std::string> notes;  ///< on torchrun's variables that have no effect

  /// The settings that options stand for, and the options as they were typed: {"num_nodes", "--nnodes"}.
  std::vector<std::pair<std::string, std::string>> options_of_settings;

  /// A sentence about settings in the words of this command line: "launch.node_rank must say" is "--node_rank must
  /// say". What names an option already stays as it is.
  std::string in_own_words(const std::string& sentence) const;

  /// The command line for one of several machines; options in `more` replace those given.
  std::vector<std::string> command(const std::vector<std::pair<std::string, std::string>>& more) const;
};

/// What --help prints.
std::string launch_help();

/// Nothing if help was asked for.
/// Errors    UsageError as config::parse; no program; --standalone with several machines
std::optional<LaunchWords> read_launch_words(Arguments arguments);

}  // namespace trireme::cli
