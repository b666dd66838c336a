// The ranks of a run as communicators: one rendezvous, then one communicator for each queue of the plan.
#pragma once

#include "trireme/comm/c10d_store.h"
#include "trireme/comm/flight_recorder.h"
#include "trireme/engine/engine.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/settings/settings.h"
#include "trireme/train/start_phases.h"

namespace trireme::train {

/// How groups of this job's ranks are made.
struct RankMeeting {
  comm::GroupOptions options;  ///< backend, store, timeouts; every group's name ends with options.name
  comm::StoreHandle store;     ///< rank 0 serves it as long as the job lives, for ranks that come later
  std::shared_ptr<comm::FlightRecorder> recorder;  ///< the latest calls of all communicators
};

/// The store where this job's ranks meet; rank 0 serves it. Unless one launcher starts all ranks, this returns once all
/// have come with the same settings.
/// Errors    UsageError if a rank has other settings (launch/machines/same_settings.h); CommError if rank 0 cannot be
/// reached, or naming ranks that do not come within launch.join_timeout
comm::StoreHandle open_job_store(const Settings& settings, const launch::RankEnvironment& environment);

/// Whether one launcher of ours has started all ranks, on one machine: they have the same settings and files.
bool one_launcher_started_all(const launch::RankEnvironment& environment);

/// Options for groups of the job's ranks, without members, name, store and recorder.
comm::GroupOptions group_options(const Settings& settings, const launch::RankEnvironment& environment);

/// Compares the settings of ranks that meet without a store, through MPI. Every rank must call.
///
/// @param options  how groups are made (group_options)
/// Cost      a communicator, and a gather of 8 bytes a rank
/// Errors    UsageError on every rank if one has other settings than rank 0; CommError naming ranks that do not come
///           within launch.join_timeout
void require_same_settings(const Settings& settings, const launch::RankEnvironment& environment,
                           comm::GroupOptions options);

/// Meets the other ranks: at the job's store, or through MPI.
/// Errors    as open_job_store() and require_same_settings()
RankMeeting meet(const Settings& settings, const launch::RankEnvironment& environment);

/// Call it after a timeout. Without our launcher, the first rank that calls it reports the hang (launch/hang/hang.h).
/// The others wait for that, because a launcher ends all ranks when one ends.
void tell_hang(const Settings& settings, const launch::RankEnvironment& environment);

struct Ranks {
  engine::Communicators communicators;
  RankMeeting meeting;
  std::string backend;  ///< what the ranks talk through: "shm", "gloo", "local"
};

/// Errors    CommError naming a rank that does not join; UsageError on every rank if they have models or adapters of
///           other shapes
Ranks connect_ranks(const Settings& settings, const launch::RankEnvironment& environment, const plan::StepPlan& plan,
                    StartPhases* phases = nullptr);

}  // namespace trireme::train
