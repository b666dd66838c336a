// The scheduler's id and name of this process's job. A requeued job uses them to recognise the job that it continues
// (folder_lock.h).
#pragma once

#include <string>

#include "trireme/launch/identity/environment.h"

namespace trireme::launch {

struct JobName {
  std::string scheduler;  ///< "Slurm", "Kubernetes", "Flux", "PBS", "LSF"; empty: none is known
  std::string id;         ///< Slurm keeps it when it requeues a job
  std::string name;  ///< the user's name for the job; a task of an array adds its number

  /// "Slurm job 4711 (austen)"; empty without a scheduler.
  std::string text() const;
};

/// Reads the scheduler's variables through `lookup`; for a pod, its host name.
JobName job_name(const EnvironmentLookup& lookup);

/// Whether both are the same job, or one is a resubmission of the other: equal ids, or equal names.
bool is_same_job(const JobName& a, const JobName& b);

}  // namespace trireme::launch
