// launch.print: the command at hand as a job file for a scheduler.
#pragma once

#include <string>
#include <vector>

#include "trireme/cli/command.h"
#include "trireme/config/parse.h"

namespace trireme::cli {

/// Prints the file that launch.print asks for; nothing is started. `arguments` are those after `subcommand`, as typed.
/// The file's command says devices and num_nodes, and a training run goes on from its newest checkpoint.
///
/// Errors    UsageError as job_file.h; launch.print in a file or the environment, where the job would print again
int print_job(const std::string& subcommand, const config::ParsedSettings& parsed, Arguments arguments);

/// The same for `words`, the whole command after the program's name. Errors    as job_file.h
int print_job_file(const config::Settings& settings, std::vector<std::string> words);

/// `arguments` without those that are for printing or for choosing machines: what the job's own command says.
std::vector<std::string> command_of_the_job(Arguments arguments);

}  // namespace trireme::cli
