// Starts the ranks of a command on this machine, from its settings.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/cli/start.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/launch/machines/elastic.h"

namespace trireme::cli {

struct RankStart {
  const Job& job;
  const ParsedSettings& parsed;
  Arguments arguments;
  const std::optional<launch::Elastic>& elastic;
  int lock_fd = -1;  ///< as launch::LaunchOptions
  int64_t planned_bytes = 0;  ///< of all ranks on this machine
};

/// Returns   as launch::launch_ranks
/// Errors    as launch::launch_ranks
int start_ranks(const RankStart& start, launch::RankEnvironment& environment);

}  // namespace trireme::cli
