// The machines of launch.hosts or launch.hostfile, which are started by ssh.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/launch/machines/host_list.h"
#include "trireme/settings/parse.h"

namespace trireme::launch {

/// The machines of launch.hosts; empty if it is not given. take_over_hosts comes first.
/// Errors    UsageError if a host is given twice, or if include or exclude does not fit the list
std::vector<HostRanks> ssh_hosts(const Settings& settings);

/// If hosts are given, sets num_nodes and devices from them. Those of launch.hostfile become launch.hosts.
/// Errors    as above; UsageError if both are given, if the file cannot be read, if hosts have different numbers of
///           ranks, or if settings contradict the list
void take_over_hosts(ParsedSettings& parsed);

/// One machine's place among `count`.
struct HostPlace {
  int count, rank;
  std::string first_address;  ///< of machine 0
};

/// Starts a command on all hosts and waits (ssh_start.h). `words` gives a machine's command without the program's name.
/// `check` is called after this function's own checks, and throws what the caller refuses. `saves`: asked to stop, the
/// command saves.
/// Errors    UsageError if there is no ssh, or if the other machines cannot reach the first
int start_on_hosts(const Settings& settings, bool saves,
                   const std::function<std::vector<std::string>(const HostPlace&)>& words,
                   const std::function<void()>& check);

/// A training command's words for one machine, with settings for the machine's place.
std::vector<std::string> words_on_host(const std::string& subcommand, const Settings& settings,
                                       std::span<const std::string> arguments, const HostPlace& place);

}  // namespace trireme::launch
