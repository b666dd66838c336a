// Environment variables of NCCL, Gloo, c10d, CUDA, torchrun and accelerate that guides tell people to set. Some mean
// something here, some only on GPUs, and some nothing at all. A user who set one is told once what became of it, so
// that nobody waits for an effect that cannot come.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/launch/identity/environment.h"
#include "trireme/settings/parse.h"

namespace trireme::launch {

/// NCCL_TIMEOUT becomes comm.timeout, unless that is given. (No version of NCCL reads it; the guides that print it mean
/// the timeout of process groups.) TRIREME_TOKEN_FILE is short for TRIREME_LAUNCH_TOKEN_FILE.
/// Errors    UsageError if it is not a whole number of seconds, at least 1
void take_over_other_variables(ParsedSettings& parsed, const EnvironmentLookup& lookup);

/// One line for each variable that is set and has no effect, or another one than its name says. `variables` are
/// those of this process's environment.
std::vector<std::string> notes_on_other_variables(const std::map<std::string, std::string>& variables,
                                                  const Settings& settings);

/// Prints these lines for this process's environment.
void tell_other_variables(const Settings& settings);

/// The interface that GLOO_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME, names; empty if none does.
/// Errors    UsageError if this host has no such interface, naming those that it has
std::string chosen_interface(const EnvironmentLookup& lookup);

}  // namespace trireme::launch
