// Machines that meet at launch.rdzv_endpoint, get their node ranks there, and meet again after a failure. With
// launch.nnodes the number of machines may change. With num_nodes and restarts it stays the same.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "trireme/launch/identity/environment.h"
#include "trireme/launch/machines/meeting_file.h"
#include "trireme/launch/machines/rendezvous.h"
#include "trireme/settings/parse.h"

namespace trireme::launch {

struct Elastic {
  std::string host;  ///< where the launchers meet
  int port = 0;
  int least = 1, most = 1;  ///< allowed numbers of machines
  std::string settings = {};  ///< as given here: what all machines must have alike (same_settings.h)
};

/// Empty for one machine, and for machines with fixed numbers and no restarts. Takes launch.rdzv_endpoint HOST:0 away
/// from `settings` of one machine: it is torchrun's word for any free port.
/// Errors    UsageError: the endpoint is missing or malformed, the range is malformed, or it contradicts num_nodes
std::optional<Elastic> elastic_of(Settings& settings);

/// Only Trireme's own launcher lets machines come and go.
/// Errors    UsageError with backend mpi, for a job file, and if another launcher has started this process
void refuse_elastic(const Settings& settings, const RankEnvironment& environment);

/// Only Trireme's own launcher starts ranks again. Rank 0 of another launcher says so if a file or a variable asks for
/// restarts, because it may be meant for both.
/// Errors    UsageError if restarts were typed for ranks that another launcher has started
void refuse_restarts(const ParsedSettings& parsed, const RankEnvironment& rank);

/// Sets num_nodes to the largest allowed number of machines on which the settings can run; if they can run on none, to
/// the smallest allowed number.
void fit_num_nodes(Settings& settings, const Elastic& elastic);

/// Serves the store at the endpoint if that is on this machine and free; else connects to it. `meeting` owns the
/// token's file. `fits_any_number`: the command can run on any number of machines.
/// Errors    as MeetingFile and Rendezvous
std::shared_ptr<Rendezvous> make_rendezvous(const Elastic& elastic, const Settings& settings, bool fits_any_number,
                                            std::optional<MeetingFile>& meeting);

}  // namespace trireme::launch
