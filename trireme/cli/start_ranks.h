// Starts the ranks of a command on this machine, from its settings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "trireme/cli/start.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/launch/machines/elastic.h"
#include "trireme/launch/supervise/launch.h"

namespace trireme::cli {

struct RankStart {
  const Job& job;
  const ParsedSettings& parsed;
  Arguments arguments;
  const std::optional<launch::Elastic>& elastic;
  int lock_fd = -1;  ///< as launch::LaunchOptions
  int64_t planned_bytes = 0;  ///< of all ranks on this machine
};

/// What the launcher of a job in `out_dir` does after ranks were killed: it removes their unfinished checkpoints. Only
/// the machine of rank 0 does so, because there are file systems whose locks the other machines do not see; where
/// machines come and go, rank 0 does it at its next start.
std::function<void()> remover_of_leftovers(const launch::LaunchOptions& options, const std::filesystem::path& out_dir);

/// What the ranks need not say again: of which checkpoints this launcher has warned.
void tell_what_was_said(launch::LaunchOptions& options);

/// Returns   as launch::launch_ranks
/// Errors    as launch::launch_ranks
int start_ranks(const RankStart& start, launch::RankEnvironment& environment);

}  // namespace trireme::cli
