#include "trireme/launch/identity/job_name.h"

#include <fmt/format.h>

#include <string_view>

namespace trireme::launch {
namespace {
struct Scheduler {
  const char *name, *id, *user_name;
};
constexpr Scheduler kSchedulers[] = {{"Slurm", "SLURM_JOB_ID", "SLURM_JOB_NAME"},
                                     {"Flux", "FLUX_JOB_ID", "FLUX_JOB_NAME"},
                                     {"PBS", "PBS_JOBID", "PBS_JOBNAME"},
                                     {"LSF", "LSB_JOBID", "LSB_JOBNAME"}};

// JOB-INDEX for a pod of an indexed job, else JOB-xxxxx.
std::string job_of_pod(const EnvironmentLookup& lookup) {
  const char* host = lookup("HOSTNAME");
  if (lookup("KUBERNETES_SERVICE_HOST") == nullptr || host == nullptr) return {};
  const std::string_view name = host;
  const char* index = lookup("JOB_COMPLETION_INDEX");
  if (index != nullptr && !name.ends_with(fmt::format("-{}", index))) return {};
  return std::string(name.substr(0, std::min(name.rfind('-'), name.size())));
}
}  // namespace

std::string JobName::text() const {
  if (scheduler.empty()) return {};
  if (id.empty() || name.empty()) return fmt::format("{} job {}{}", scheduler, id, name);
  return fmt::format("{} job {} ({})", scheduler, id, name);
}

JobName job_name(const EnvironmentLookup& lookup) {
  for (const Scheduler& scheduler : kSchedulers) {
    const char *id = lookup(scheduler.id), *name = lookup(scheduler.user_name);
    if (id == nullptr) continue;
    JobName job{.scheduler = scheduler.name, .id = id, .name = name == nullptr ? "" : name};
    if (const char* task = lookup("SLURM_ARRAY_TASK_ID"); task != nullptr && !job.name.empty())
      job.name += fmt::format("[{}]", task);
    return job;
  }
  if (const std::string name = job_of_pod(lookup); !name.empty()) return {.scheduler = "Kubernetes", .name = name};
  return {};
}

bool is_same_job(const JobName& a, const JobName& b) {
  if (a.scheduler.empty() || a.scheduler != b.scheduler) return false;
  return (!a.id.empty() && a.id == b.id) || (!a.name.empty() && a.name == b.name);
}

}  // namespace trireme::launch
