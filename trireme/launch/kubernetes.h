// A pod of an indexed job of Kubernetes: JOB_COMPLETION_INDEX numbers the pods, and with a headless service (the pod
// template's `subdomain`) each has a name, JOB-INDEX.SERVICE.NAMESPACE.svc.cluster.local, by which the others reach it.
#pragma once

#include <optional>
#include <string>

#include "trireme/launch/environment.h"

namespace trireme::launch {

/// This pod's number; nothing outside of an indexed job. Errors    UsageError where it is no number
std::optional<int> pod_index(const EnvironmentLookup& lookup);

/// The name of pod 0, given this pod's `index` and whole name; empty where the name has no such form, or no domain.
std::string first_pod(const std::string& own_name, int index);

}  // namespace trireme::launch
