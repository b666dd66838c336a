// This machine's place (torchrun's node rank) in a job whose ranks are started by Trireme's own launcher.
#pragma once

#include <optional>

#include "trireme/launch/identity/environment.h"
#include "trireme/launch/machines/meeting_file.h"
#include "trireme/launch/supervise/launch.h"
#include "trireme/settings/settings.h"

namespace trireme::launch {

/// True if srun started one task on each machine, and this task must start its machine's `devices` ranks. One rank is
/// started if it may have to start again.
bool is_launcher_of_a_node(const RankEnvironment& environment, const Settings& settings);

/// True if this launcher starts the job's rank 0. Machine numbers must be fixed (not elastic). Errors    as check_nodes
bool is_first_node(const Settings& settings, const RankEnvironment& environment);

/// Throws the UsageErrors of choose_nodes early, and has no other effect.
/// Errors    UsageError: master_addr is missing, a loopback address or one of IPv6, node_rank is missing or too large,
///           the token file is refused
void check_nodes(const Settings& settings, const RankEnvironment& environment);

/// Options for ranks or launchers that find each other through a file in out_dir (meeting_file.h).
MeetingOptions meeting_options(const Settings& settings);

/// Returns this machine's place. Machine 0 already listens then. Under srun, the others find it by `meeting`'s file.
/// Errors    as check_nodes; UsageError for a port that is taken
Nodes choose_nodes(const Settings& settings, RankEnvironment& environment, std::optional<MeetingFile>& meeting);

}  // namespace trireme::launch
