// Which machines of a list a job uses, in the words of DeepSpeed's launcher: launch.include "a@b:0,2" takes all of a
// and two slots of b, launch.exclude leaves them out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/machines/host_list.h"

namespace trireme::launch {

/// The hosts that remain, in the order of the list. Of a host that is named with slots, only these count (`include`),
/// or all others (`exclude`): its `ranks` becomes their number, and `slots` names them. Empty texts filter nothing.
/// Errors    UsageError if both are given, if a host or slot is not in the list, or if nothing remains
std::vector<HostRanks> filter_hosts(const std::vector<HostRanks>& hosts, std::string_view include,
                                    std::string_view exclude);

}  // namespace trireme::launch
