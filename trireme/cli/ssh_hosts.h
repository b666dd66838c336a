// The machines of launch.hosts or launch.hostfile, which start by ssh.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/cli/command.h"
#include "trireme/config/parse.h"
#include "trireme/launch/host_list.h"

namespace trireme::cli {

/// Empty where neither is given. Errors    UsageError: both are given, a host twice, a list that cannot be read
std::vector<launch::HostRanks> ssh_hosts(const config::Settings& settings);

/// Where hosts are given, num_nodes and devices are what they say.
///
/// Errors    as above; UsageError: hosts with different numbers of ranks, or numbers that contradict the list
void take_over_hosts(config::ParsedSettings& parsed);

/// One machine's place: 0 to `count` - 1, and where the first one is.
struct HostPlace {
  int count, rank;
  std::string first_address;
};

/// Starts a command on all of them and waits: launch/ssh_start.h. `words` gives a machine's command, after the
/// program's name; `check` refuses what can be refused here, after this function's own refusals.
///
/// Errors    UsageError: no ssh, a first machine that the others cannot reach
int start_on_hosts(const config::Settings& settings,
                   const std::function<std::vector<std::string>(const HostPlace&)>& words,
                   const std::function<void()>& check);

/// A training command's words for one machine: its settings say the machine's place.
std::vector<std::string> words_on_host(const std::string& subcommand, const config::Settings& settings,
                                       Arguments arguments, const HostPlace& place);

}  // namespace trireme::cli
