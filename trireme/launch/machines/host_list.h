// Lists of hosts: Slurm's shorthands, NAME:RANKS, Open MPI's hostfiles.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

/// "node[01-03,7],gpu5" -> node01, node02, node03, node7, gpu5. Several brackets in one name multiply.
/// Errors    UsageError naming `variable`, which holds the text: a bracket that is not closed, a range that runs
///           backwards, more than 65,536 hosts
std::vector<std::string> expand_host_list(std::string_view variable, std::string_view text);

/// "2(x3),1" -> 2, 2, 2, 1. Errors    UsageError as above
std::vector<int> expand_task_counts(std::string_view variable, std::string_view text);

/// A machine and its number of ranks; 0: not given.
struct HostRanks {
  std::string name;
  int ranks = 0;
  std::vector<int> slots = {};  ///< those that launch.include or launch.exclude has left; empty: all
};

/// "a", "a:4", "user@a:4". Errors    UsageError naming `source`
HostRanks parse_host(std::string_view source, std::string_view text);

/// One machine a line, as above or with Open MPI's "slots=4"; # begins a comment. Errors    UsageError naming `source`
/// and the line
std::vector<HostRanks> parse_hostfile(std::string_view source, std::string_view text);

}  // namespace trireme::launch
