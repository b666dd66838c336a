// Work that may end anywhere when it is asked to: what it has done is in files already, or it has written nothing.
#pragma once

#include <functional>
#include <string>

#include "trireme/launch/identity/environment.h"

namespace trireme::cli {

/// Runs `work` and returns its exit code. If a stop is requested meanwhile, this process ends with kStoppedEarly
/// within half a second. The first rank says "stopped by request: " and `last_words`, which say what is left of the
/// work. Every rank that the request reaches does so at about the same time. The handlers are installed already
/// (install_stop_signal).
///
/// Errors    what `work` throws before a stop is requested; what it throws later may follow from the end of another
/// rank
int run_until_stopped(const launch::RankEnvironment& environment, const std::function<int()>& work,
                      const std::function<std::string()>& last_words);

}  // namespace trireme::cli
