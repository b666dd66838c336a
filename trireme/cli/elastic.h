// Machines that meet at launch.rdzv_endpoint, get their numbers there, and meet again after a failure: with
// launch.nnodes as many as come, with num_nodes and restarts always the same number.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/config/settings.h"
#include "trireme/launch/environment.h"
#include "trireme/launch/meeting_file.h"
#include "trireme/launch/rendezvous.h"

namespace trireme::cli {

struct Elastic {
  std::string host;  ///< where the launchers meet
  int port = 0;
  int least = 1, most = 1;  ///< machines
};

/// Nothing where machines have fixed numbers and no restarts, or are one.
///
/// Errors    UsageError: no endpoint, or one that is none; a range that is none; a contradiction to num_nodes
std::optional<Elastic> elastic_of(const config::Settings& settings);

/// Machines come and go only where Trireme's own launcher starts the ranks.
///
/// Errors    UsageError with backend mpi, and where another launcher has started this process
void refuse_elastic(const config::Settings& settings, const launch::RankEnvironment& environment);

/// Sets num_nodes to the most machines on which the settings can run.
///
/// Errors    UsageError where they can on no number of machines that may come
void fit_num_nodes(config::Settings& settings, const Elastic& elastic);

/// Serves the meeting place where it is this machine's and free, else finds it. `meeting` keeps the file with the
/// token.
///
/// Errors    as launch::MeetingFile and launch::Rendezvous
std::shared_ptr<launch::Rendezvous> make_rendezvous(const Elastic& elastic, const config::Settings& settings,
                                                    bool fits_any_number, std::optional<launch::MeetingFile>& meeting);

}  // namespace trireme::cli
