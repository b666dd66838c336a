// The ranks of a run as communicators: rendezvous once, then one communicator for each queue of the plan.
#pragma once

#include "trireme/comm/flight_recorder.h"
#include "trireme/comm/store.h"
#include "trireme/config/settings.h"
#include "trireme/engine/engine.h"
#include "trireme/launch/environment.h"
#include "trireme/train/start_phases.h"

namespace trireme::train {

/// How groups of this job's ranks are made.
struct RankMeeting {
  comm::GroupOptions options;  ///< backend, store, timeouts; `name` is what every group's name ends with
  comm::StoreHandle store;     ///< rank 0 serves it: it lives as long as the job, for those who come later
  std::shared_ptr<comm::FlightRecorder> recorder;  ///< the latest calls of all communicators
};

/// The store where this job's ranks meet; rank 0 serves it.
///
/// Errors    CommError when rank 0 cannot be reached
comm::StoreHandle open_job_store(const config::Settings& settings, const launch::RankEnvironment& environment);

/// How a group of the job's ranks is made, but for its members, name, store and recorder.
comm::GroupOptions group_options(const config::Settings& settings, const launch::RankEnvironment& environment);

/// Errors    CommError when rank 0 cannot be reached
RankMeeting meet(const config::Settings& settings, const launch::RankEnvironment& environment);

/// What a rank says that has waited in vain for another, where no launcher of ours is there to say it: the verdict of
/// launch/hang.h, from the first of those ranks. The others wait for it, because a launcher ends all when one ends.
void tell_hang(const config::Settings& settings, const launch::RankEnvironment& environment);

struct Ranks {
  engine::Communicators communicators;
  RankMeeting meeting;
  std::string backend;      ///< what the ranks talk through: "shm", "gloo", "local"
};

/// Errors    CommError when a rank does not come, naming it
Ranks connect_ranks(const config::Settings& settings, const launch::RankEnvironment& environment,
                    const plan::StepPlan& plan, StartPhases* phases = nullptr);

}  // namespace trireme::train
