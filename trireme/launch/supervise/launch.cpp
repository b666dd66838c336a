#include "trireme/launch/supervise/launch.h"

#include <fmt/format.h>

#include <optional>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/launch/machines/rendezvous.h"
#include "trireme/launch/machines/room.h"
#include "trireme/launch/machines/verdict.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/launch/supervise/supervisor.h"

namespace trireme::launch {
namespace {
void check(const LaunchOptions& options) {
  require_room({.num_ranks = options.num_ranks,
                .bytes_of_a_rank = options.executable.empty() ? kBytesOfARank : 0,
                .planned_bytes = options.planned_bytes},
               options.oversubscribe);
  if (options.threads_per_rank < 0)
    throw UsageError(fmt::format("{} threads per rank are not possible: take 1 or more, or 0 for cores / ranks",
                                 options.threads_per_rank));
  if (options.max_restarts < 0) throw UsageError(fmt::format("{} restarts are not possible", options.max_restarts));
  if (options.max_restarts > 0 && options.nodes.count > 1 && !options.rendezvous)
    throw UsageError(
        "restarts over several machines need a place where their launchers meet, launch.rdzv_endpoint HOST:PORT; under "
        "a scheduler, let the scheduler start the job again");
  // Where machines come and go, a rank may be there in one round and not in another.
  const int machines = options.rendezvous ? options.rendezvous->most() : options.nodes.count;
  for (const int rank : options.log_ranks) {
    const int last = machines * options.num_ranks - 1;
    if (rank < 0 || rank > last)
      throw UsageError(fmt::format("cannot show the output of rank {}: the ranks are 0 to {}", rank, last));
  }
}

// Prints a verdict and waits for its pause; false if the job ends.
bool goes_on(const Verdict& verdict) {
  if (!verdict.why.empty()) base::info("{}", verdict.why);
  for (const auto until = std::chrono::steady_clock::now() + verdict.pause;
       verdict.again && std::chrono::steady_clock::now() < until && !stop_requested();)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return verdict.again;
}

int stopped_in_between(const char* waited_for) {
  base::info("stopped {}while waiting for {}",
             stop_requested() ? fmt::format("by {} ", name_of_stop(stop_signal())) : "", waited_for);
  return kStoppedEarly;
}

// What became of one start of the ranks.
struct Attempt {
  int code = 0;
  std::optional<Supervisor::Failure> failure = {};
  int lost_output = 0;  // errno

  // The launcher's exit code. What ranks print is their result, and one that is lost is no success.
  int end() const {
    if (code == 0 && lost_output != 0) base::throw_file_error("write", "standard output", lost_output);
    return code;
  }
};

Attempt attempt(const LaunchOptions& options, int restart_count) {
  Supervisor supervisor(options, restart_count);
  Attempt made;
  made.code = supervisor.run(made.failure);
  made.lost_output = supervisor.lost_output();
  return made;
}

int launch_alone(LaunchOptions options) {
  if (options.max_restarts > 0) options.nodes.run = new_job_id();
  History history;
  while (true) {
    const Attempt made = attempt(options, history.restarts);
    const auto& failure = made.failure;
    if (!failure || options.max_restarts == 0) return made.end();
    const RoundResult result{
        .kind = RoundResult::Kind::failed, .who = failure->who, .words = failure->words, .is_known = failure->is_known};
    if (!goes_on(judge({&result, 1}, options.max_restarts, history))) return made.end();
    if (stop_requested()) return stopped_in_between("the restart");
  }
}

RoundResult result_of(const Attempt& made) {
  using Kind = RoundResult::Kind;
  if (made.failure)
    return {.kind = made.failure->is_consequence ? Kind::consequence : Kind::failed,
            .who = made.failure->who,
            .words = made.failure->words,
            .is_known = made.failure->is_known};
  if (made.code == kUsageError) return {.kind = Kind::refused, .words = "its ranks were refused"};
  return {.kind = made.code == 0 ? Kind::done : Kind::over, .agreed = made.code == kStoppedEarly};
}

// With the launchers of other machines; each start may be on a different set of machines.
int launch_together(LaunchOptions options) {
  Rendezvous& others = *options.rendezvous;
  while (true) {
    const auto nodes = others.meet();
    if (!nodes) return stopped_in_between("the other machines");
    options.nodes = *nodes;
    options.end_fd = others.end_fd();
    const Attempt made = attempt(options, others.round());
    const Verdict verdict = others.conclude(result_of(made));
    if (verdict.refused) {
      if (made.code != kUsageError) base::info("{}", verdict.why);
      return kUsageError;
    }
    // This machine's ranks may have succeeded, or stopped before they began, where others failed.
    const bool is_unhurt = made.code == 0 || made.code == kStoppedEarly;
    if (!goes_on(verdict)) return is_unhurt && !verdict.why.empty() ? 1 : made.end();
  }
}
}  // namespace

int launch_ranks(const LaunchOptions& options) {
  check(options);
  if (!options.out_dir.empty()) {
    std::error_code error;  // the ranks' logs lie there
    std::filesystem::create_directories(options.out_dir, error);
    if (error)
      throw UsageError(
          fmt::format("cannot make the folder {}: {}; choose another --out_dir (trireme launch: --log_dir)",
                      options.out_dir.string(), error.message()));
    try {
      base::make_real_folder(options.out_dir / "logs");
    } catch (const base::FileError& refusal) {
      throw UsageError(fmt::format("{}; choose another --out_dir (trireme launch: --log_dir)", refusal.what()));
    }
  }
  return options.rendezvous ? launch_together(options) : launch_alone(options);
}

}  // namespace trireme::launch
