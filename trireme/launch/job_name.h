// What a scheduler calls the job that this process belongs to: by it a job that was put back into the queue knows the
// one that it continues (folder_lock.h).
#pragma once

#include <string>

#include "trireme/launch/environment.h"

namespace trireme::launch {

struct JobName {
  std::string scheduler;  ///< "Slurm", "Kubernetes", "Flux", "PBS", "LSF"; empty: none is known
  std::string id;         ///< Slurm keeps it where it queues a job again
  std::string name;  ///< the user's: the same where a job submits its successor; a task of an array has its number

  /// "Slurm job 4711 (austen)"; empty without a scheduler.
  std::string text() const;
};

/// Read through `lookup`; a pod's job is known by the pod's host name.
JobName job_name(const EnvironmentLookup& lookup);

/// Whether both are one job, or one is what the other was submitted as again: equal ids, or equal names.
bool is_same_job(const JobName& a, const JobName& b);

}  // namespace trireme::launch
