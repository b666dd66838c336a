#include "trireme/cli/read_for_ranks.h"

#include <algorithm>
#include <exception>
#include <filesystem>

#include "trireme/cli/read_settings.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/launch/machines/local_ranks.h"
#include "trireme/launch/machines/nodes.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/resume_settings.h"

namespace trireme::cli {
namespace {

// Mistakes are passed over: most leave the place where the ranks meet as it is.
void tell_ranks_by_hand(const Job& job, Arguments arguments, const std::exception& why) try {
  if (!launch::was_launched()) return;
  const launch::RankEnvironment environment = launch::rank_environment();
  if (!launch::are_by_hand(environment)) return;
  config::Overlay overlay = job.overlay;
  overlay.passes_over_mistakes = true;
  ParsedSettings parsed = read_settings(arguments, overlay);
  if (parsed.help || parsed.settings.dry_run || parsed.settings.comm.backend == comm::Backend::mpi) return;
  settle_out_dir(job, parsed);
  launch::tell_others(environment, launch::meeting_options(parsed.settings), why);
} catch (const std::exception&) {  // the others wait as for a rank that was not started
}

}  // namespace

ParsedSettings read_for_ranks(const Job& job, Arguments arguments) try {
  return read_settings(arguments, job.overlay);
} catch (const std::exception& why) {
  tell_ranks_by_hand(job, arguments, why);
  throw;
}

void settle_out_dir(const Job& job, ParsedSettings& parsed) {
  if (job.owns_out_dir) return train::place_run(parsed, /*owns_out_dir=*/true);
  std::string folder = job.subcommand;
  std::replace(folder.begin(), folder.end(), ' ', '-');
  std::string& out_dir = parsed.settings.out_dir;  // another command must not overwrite the records of a run
  if (train::holds_a_run(out_dir)) out_dir = (std::filesystem::path(out_dir) / folder).string();
}

}  // namespace trireme::cli
