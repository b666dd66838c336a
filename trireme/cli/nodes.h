// This machine's place among the machines of a job that Trireme's own launcher starts.
#pragma once

#include <optional>

#include "trireme/config/settings.h"
#include "trireme/launch/environment.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/meeting_file.h"

namespace trireme::cli {

/// Whether this process is one of srun's tasks, one on each machine, that is to start `devices` ranks itself.
bool is_launcher_of_a_node(const launch::RankEnvironment& environment, const config::Settings& settings);

/// Whether the ranks that this launcher starts begin with the job's rank 0; machines have fixed numbers.
///
/// Errors    UsageError as check_nodes
bool is_first_node(const config::Settings& settings, const launch::RankEnvironment& environment);

/// Refuses what choose_nodes would refuse later, and touches nothing.
///
/// Errors    UsageError: no master_addr, one that other machines cannot reach, a node_rank that is missing or
///           too large, a token file that is none
void check_nodes(const config::Settings& settings, const launch::RankEnvironment& environment);

/// How ranks, or the launchers of machines, find each other by a file in out_dir.
launch::MeetingOptions meeting_options(const config::Settings& settings);

/// Machine 0 listens when this returns. `meeting` keeps the file by which srun's machines find it.
///
/// Errors    as check_nodes; UsageError for a port that is taken
launch::Nodes choose_nodes(const config::Settings& settings, launch::RankEnvironment& environment,
                           std::optional<launch::MeetingFile>& meeting);

}  // namespace trireme::cli
