// launch.print: prints this command as a job file for a scheduler.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/settings/parse.h"

namespace trireme::launch {

/// Prints the file that launch.print asks for; nothing is started. `arguments` are those after `subcommand`, as typed.
/// The file's command sets devices and num_nodes. A run that resumes continues from its newest checkpoint.
/// Errors    UsageError as job_file.h; for what the job would refuse; with overwrite; if launch.print is in a file or
///           the environment, because the job would print again
int print_job(const std::string& subcommand, WhenStopped when_stopped, const ParsedSettings& parsed,
              std::span<const std::string> arguments);

/// The same for `words`: the whole command without the program's name. Errors    as job_file.h
int print_job_file(const Settings& settings, std::vector<std::string> words, WhenStopped when_stopped);

/// Refuses what lets the number of machines change: a job file has a fixed one. Errors    UsageError
void refuse_changing_machines(const LaunchSettings& launch);

/// Settings of the group launch that choose machines, without the group's name. On each of these machines, the job's
/// own command leaves them out; otherwise it would start all machines again.
inline constexpr std::string_view kMachineSettings[] = {"hosts", "hostfile", "include", "exclude"};

/// Whether `key` (with or without "launch.") is one of these, or only says what is printed.
bool is_for_printing(std::string_view key);

/// `arguments` without those for printing or for choosing machines: the arguments of the job's own command.
std::vector<std::string> command_of_the_job(std::span<const std::string> arguments);

}  // namespace trireme::launch
