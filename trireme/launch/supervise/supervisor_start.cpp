// The part of supervisor.h that starts a rank: its pipes, its environment, its cores.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "trireme/base/error.h"
#include "trireme/base/process.h"
#include "trireme/base/stop_signals.h"
#include "trireme/launch/supervise/spawn.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/launch/supervise/supervisor.h"

namespace trireme::launch {
namespace {
using namespace std::chrono_literals;

constexpr int kLoadingPerCore = 4, kLeastLoading = 8;
constexpr auto kLongestLoad = 2s;
}  // namespace

// A machine loads only a few programs at once. The next rank starts when one of them has reported that it has loaded,
// or, if it is another program, after kLongestLoad. No more ranks start once the job is to end. With several machines
// all ranks start even then, because ranks of all machines stop together.
void Supervisor::start_more_ranks() {
  const int most = std::max(kLeastLoading, kLoadingPerCore * share_.num_cores);
  while (starts_more() && num_loading() < most) {
    start_rank(num_started_++);
    if (stop_signal_ != 0) pass_on_stop(ranks_[static_cast<std::size_t>(num_started_ - 1)].outcome.pid, stop_signal_);
    read_signals();
  }
}

bool Supervisor::starts_more() const {
  return num_started_ < options_.num_ranks && !kill_sent_ && !some_failure_ && (stop_signal_ == 0 || !is_alone());
}

int Supervisor::num_loading() const {
  const auto limit = Clock::now() - kLongestLoad;
  return static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
    return rank.alive() && !rank.loaded && rank.started_at > limit;
  }));
}

// Before this is true, no rank has done a step, because a step needs all ranks. So there is nothing to save.
bool Supervisor::all_begun() const {
  return num_started_ == options_.num_ranks && std::ranges::all_of(ranks_, &Rank::begun);
}

void Supervisor::start_rank(int number) {
  auto& rank = ranks_[static_cast<std::size_t>(number)];
  const int global_rank = first_rank() + number;
  rank.outcome.global_rank = global_rank;
  rank.outcome.log_path = rank.log.path().string();

  int report_ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, report_ends) != 0)
    throw Error(
        fmt::format("launcher: no socket for rank {}'s reports: {}", global_rank, base::why_no_descriptor(errno)));
  rank.report_fd = base::FileDescriptor(report_ends[0]);
  const base::FileDescriptor rank_report(report_ends[1]);

  SpawnRequest request{.executable = program_.path, .signal_mask = process_.mask_before()};
  request.arguments = options_.arguments;
  request.arguments.insert(request.arguments.begin(), program_.name);
  request.environment =
      rank_variables(options_, number, restart_count_, launcher_id_, meeting_point_, rank_report.get(), token_.get(),
                     options_.threads_per_rank > 0 ? options_.threads_per_rank : share_.threads_per_rank);
  // These signals stay pending until the rank installs its handlers (stop_signal.h).
  if (options_.executable.empty())
    for (const int number : base::kStopSignals) sigaddset(&request.signal_mask, number);
  request.kept_fds = {rank_report.get()};
  request.error_fd = rank_report.get();
  if (options_.lock_fd >= 0) request.kept_fds.push_back(options_.lock_fd);
  if (token_.get() >= 0) request.kept_fds.push_back(token_.get());
  if (global_rank == 0) request.kept_fds.push_back(meeting_point_.fd.get());
  if (options_.pin && !share_.cpus_of_rank.empty())
    request.cpus = share_.cpus_of_rank[static_cast<std::size_t>(number)];

  Pipe output(O_NONBLOCK), errors(O_NONBLOCK);
  if (number == 0) {
    // Rank 0 writes to a terminal directly, so that its progress line can update in place.
    if (isatty(0) == 0) request.stdin_fd = 0;
    if (isatty(1) == 0) {
      rank.streams.push_back({.fd = std::move(output.read_end), .screen = &out_});
      request.stdout_fd = output.write_end.get();
    }
    rank.streams.push_back({.fd = std::move(errors.read_end), .screen = &err_});  // read after stdout
  } else {
    // One pipe for both outputs keeps their order.
    const auto& shown = options_.log_ranks;
    const bool show = options_.out_dir.empty() || std::ranges::find(shown, global_rank) != shown.end();
    rank.streams.push_back({.fd = std::move(errors.read_end),
                            .screen = show ? &err_ : nullptr,
                            .prefix = fmt::format("[rank {}] ", global_rank)});
    request.stdout_fd = errors.write_end.get();
  }
  request.stderr_fd = errors.write_end.get();

  rank.outcome.pid = spawn_rank(request);
  rank.started_at = Clock::now();
  rank.pidfd = base::FileDescriptor(open_pidfd(rank.outcome.pid));
  guardian_.watch(rank.outcome.pid);
  if (global_rank == 0) meeting_point_.hand_over();
  keep(rank, fmt::format("--- job {}: rank {} of {}, pid {}{}\n", launcher_id_, global_rank,
                         options_.num_ranks * options_.nodes.count, rank.outcome.pid,
                         number == 0 && isatty(1) ? " (standard output is on the terminal)" : ""));
}

}  // namespace trireme::launch
