#include "trireme/launch/supervise/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/launch/supervise/worker.h"
#include "trireme/store/token.h"

namespace trireme::launch {
namespace {
using namespace std::chrono_literals;

// After a failure, the launcher waits this long before it stops the other ranks, so that the cause can arrive.
constexpr auto kSettle = 100ms;
constexpr auto kSettleConsequence = 2s;                     // the same if only a consequence is known
constexpr std::chrono::milliseconds kGraceOfTheStuck = 1s;  // a stuck rank does not react to a signal either
constexpr std::chrono::milliseconds kGraceWithoutOthers = 3s;  // for ranks whose peers on other machines have ended
constexpr auto kStopPatience = 2s;  // before the user is told what the launcher waits for
constexpr auto kGlance = 20ms;      // between looks at events without a descriptor
constexpr auto kOrphansStay = 10s;  // that have ended: nothing wakes the launcher for them
constexpr int kMaxGuardianRestarts = 10;
constexpr std::size_t kTailBytes = 8192;

base::FileDescriptor token_of(const Nodes& nodes) {
  if (!nodes.token.empty()) return store::token_descriptor(nodes.token);
  return nodes.count == 1 ? store::token_descriptor(store::draw_token()) : base::FileDescriptor();
}
}  // namespace

Supervisor::Supervisor(const LaunchOptions& options, int restart_count)
    : options_(options),
      restart_count_(restart_count),
      guardian_("TRIREME_LAUNCHER_ID=" + launcher_id_, options.remove_leftovers),
      meeting_point_(options.nodes),
      token_(token_of(options.nodes)),
      share_(share_cores(options.num_ranks)),
      program_(find_program(options)) {
  ranks_.resize(static_cast<std::size_t>(options.num_ranks));
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    auto& log = ranks_[static_cast<std::size_t>(rank)].log;
    if (!options.out_dir.empty())
      log = RankLog(options.out_dir / "logs" / fmt::format("rank{}.log", first_rank() + rank));
  }
  std::error_code ignored;
  if (!options.out_dir.empty())  // an earlier job's
    std::filesystem::remove(base::flight_folder(options.out_dir) / kVerdictName, ignored);
  if (first_rank() == 0 && !options.log_link.empty())
    link_to_log(options.out_dir / options.log_link, ranks_.front().log.path());
}

Supervisor::~Supervisor() {
  // Ranks are alive here only after an exception during the start.
  if (any_alive()) kill_ranks();
  while (any_alive()) {
    reap();
    abandon_stuck_ranks();
    usleep(1000);
  }
  kill_orphans();
}

int Supervisor::run(std::optional<Failure>& failure) {
  if (share_.cpus_of_rank.empty() && options_.pin && !options_.quiet)
    say(fmt::format("{} ranks share {} core{}: ranks are not pinned", options_.num_ranks, share_.num_cores,
                    share_.num_cores == 1 ? "" : "s"));
  // A request from before the signal descriptor existed.
  if (stop_requested()) ask_to_stop(stop_signal());
  while (starts_more() || any_alive()) {
    start_more_ranks();
    wait_for_event();
    reap();
    act_on_failure();
    end_what_has_not_begun();
    abandon_stuck_ranks();
  }
  ranks_.resize(static_cast<std::size_t>(num_started_));
  kill_orphans();
  drain();
  const int code = report(failure);
  for (Screen* screen : {&out_, &err_})
    screen->flush_before_exit(process_.signal_fd(), screen == &out_ && code == 0 && stop_signal_ == 0);
  if (options_.remove_leftovers) options_.remove_leftovers();  // may take long on a network's file system
  return code;
}

bool Supervisor::any_alive() const { return std::ranges::any_of(ranks_, &Rank::alive); }

int Supervisor::poll_timeout_ms() const {
  auto until = Clock::time_point::max();
  if (starts_more() || killed_at_ || ends_unbegun()) until = Clock::now() + kGlance;
  if (some_failure_ && stop_at_ && !term_sent_) until = std::min(until, *stop_at_);
  if (kill_at_ && !kill_sent_) until = std::min(until, *kill_at_);
  if (kill_at_ && !wait_told_) until = std::min(until, *kill_at_ - grace_ + kStopPatience);
  // The kernel may have no pidfds.
  if (std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.alive() && rank.pidfd.get() < 0; }))
    until = std::min(until, Clock::now() + kGlance);
  until = std::min(until, Clock::now() + kOrphansStay);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  return static_cast<int>(std::clamp<long>(left, 0, 1'000'000));
}

void Supervisor::wait_for_event() {
  std::vector<pollfd> fds;
  const auto watch = [&](int fd, short events) {
    if (fd >= 0) fds.push_back({fd, events, 0});
  };
  watch(process_.signal_fd(), POLLIN);
  watch(guardian_.pidfd(), POLLIN);
  if (!ended_elsewhere_) watch(options_.end_fd, POLLIN);
  for (Screen* screen : {&out_, &err_})
    if (screen->waiting()) watch(screen->fd(), POLLOUT);
  for (const auto& rank : ranks_) {
    if (rank.alive()) watch(rank.pidfd.get(), POLLIN);
    watch(rank.report_fd.get(), POLLIN);
    for (const auto& stream : rank.streams)
      if (stream.screen == nullptr || !stream.screen->full()) watch(stream.fd.get(), POLLIN);
  }
  if (poll(fds.data(), fds.size(), poll_timeout_ms()) <= 0) return;

  const auto is_ready = [&](int fd) {
    return std::ranges::any_of(fds, [&](const pollfd& entry) { return entry.fd == fd && entry.revents != 0; });
  };
  out_.flush();
  err_.flush();
  if (is_ready(process_.signal_fd())) read_signals();
  if (is_ready(guardian_.pidfd())) guardian_restarts_++ < kMaxGuardianRestarts ? guardian_.restart() : guardian_.stop();
  if (is_ready(options_.end_fd)) ended_elsewhere_ = some_failure_ = true;
  for (auto& rank : ranks_) {
    if (is_ready(rank.report_fd.get())) read_reports(rank);
    for (auto& stream : rank.streams)
      if (is_ready(stream.fd.get())) read_stream(rank, stream);
  }
}

void Supervisor::read_signals() {
  signalfd_siginfo info{};
  while (read(process_.signal_fd(), &info, sizeof info) == static_cast<long>(sizeof info)) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGTSTP) {
      suspend_with_ranks();
    } else if (stop_signal_ == 0 || stop_signal_ == SIGUSR1) {
      if (number != stop_signal_) ask_to_stop(number);
    } else if (number == SIGUSR1 || Clock::now() - stop_asked_at_ < same_request(number, stop_signal_)) {
      continue;
    } else {
      kill_requested_ = true;
      kill_ranks();
    }
  }
}

void Supervisor::ask_to_stop(int number) {
  stop_signal_ = number;
  stop_asked_at_ = Clock::now();
  for (const auto& rank : ranks_)
    if (rank.alive()) pass_on_stop(rank.outcome.pid, number);
  const std::string again = number == SIGINT ? "a second Ctrl-C" : "a second signal";
  if (options_.quiet) return;
  if (!options_.saves) return say(fmt::format("stopping: ranks are asked to end; {} kills them at once", again));
  if (!is_unbegun()) return say(fmt::format("stopping: ranks finish the step and save; {} kills them at once", again));
  constexpr std::string_view kNothing = "stopping: no step has begun, so there is nothing to save";
  say(is_alone() ? fmt::format("{}; {} kills the ranks at once", kNothing, again)
                 : fmt::format("{}; ranks wait for the others at most {}; {} kills them at once", kNothing,
                               base::human_duration(options_.stop_patience), again));
}

// Ctrl-Z reaches only the launcher, because the ranks are in other process groups.
void Supervisor::suspend_with_ranks() {
  for (const auto& rank : ranks_)
    if (rank.alive()) kill(-rank.outcome.pid, SIGSTOP);
  kill(getpid(), SIGSTOP);
  for (const auto& rank : ranks_)
    if (rank.alive()) kill(-rank.outcome.pid, SIGCONT);
}

bool Supervisor::read_stream(Rank& rank, RankStream& stream) {
  const std::string text = stream.read();
  keep(rank, text);
  rank.tail += text;
  if (rank.tail.size() > 2 * kTailBytes) rank.tail.erase(0, rank.tail.size() - kTailBytes);
  return !text.empty();
}

void Supervisor::keep(Rank& rank, std::string_view text) {
  if (const int error = rank.log.write(text))
    say(fmt::format("rank {}'s log {} takes no more ({}); its output is no longer kept", rank.outcome.global_rank,
                    rank.outcome.log_path, std::strerror(error)));
}

void Supervisor::read_reports(Rank& rank) {
  char buffer[sizeof(ReportHeader) + kMaxReportText];
  while (rank.report_fd.get() >= 0) {
    const auto got = recv(rank.report_fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < static_cast<long>(sizeof(ReportHeader))) {
      rank.report_fd = {};
      return;
    }
    ReportHeader header;
    std::memcpy(&header, buffer, sizeof header);
    const std::string text(buffer + sizeof header, static_cast<std::size_t>(got) - sizeof header);
    auto& outcome = rank.outcome;
    switch (header.kind) {
      case ReportKind::status:
        outcome.status = text;
        break;
      case ReportKind::loaded:
        rank.loaded = true;
        break;
      case ReportKind::begun:
        rank.begun = true;
        break;
      case ReportKind::exec_failed:
        outcome.reported = fmt::format("cannot run {}: {}", program_.path, std::strerror(std::atoi(text.c_str())));
        outcome.failed_at = Clock::now();
        some_failure_ = true;
        break;
      case ReportKind::failure:
      case ReportKind::refusal:
      case ReportKind::consequence:
      case ReportKind::timeout:
        if (outcome.reported) break;  // the first reason is the reason
        outcome.reported = text;
        outcome.refused = header.kind == ReportKind::refusal;
        if (outcome.refused) keep(rank, base::error_text(text) + "\n");
        outcome.consequence = header.kind == ReportKind::consequence || header.kind == ReportKind::timeout;
        outcome.timed_out = header.kind == ReportKind::timeout;
        outcome.failed_at = Clock::time_point(std::chrono::nanoseconds(header.monotonic_ns));
        some_failure_ = true;
        break;
    }
  }
}

// Those that waitid does not show, because a child that must not be reaped here comes first.
void Supervisor::reap_orphans_behind() {
  const auto now = Clock::now();
  if (now - looked_behind_ < std::chrono::seconds(1)) return;
  looked_behind_ = now;
  std::vector<ProcessEntry> table(kMaxProcesses);
  const auto count = list_processes(table, Zombies::too);
  for (const ProcessEntry& entry : std::span(table).first(count.value_or(0)))
    if (entry.parent == getpid() && !is_known(entry.pid)) waitpid(entry.pid, nullptr, WNOHANG);
}

bool Supervisor::is_known(pid_t pid) const {
  return pid == guardian_.pid() || process_.had_child(pid) ||
         std::ranges::any_of(ranks_, [&](const Rank& rank) { return rank.outcome.pid == pid; });
}

void Supervisor::reap() {
  for (auto& rank : ranks_) {
    int status = 0;
    rusage usage{};
    if (rank.alive() && wait4(rank.outcome.pid, &status, WNOHANG, &usage) == rank.outcome.pid)
      on_end(rank, status, static_cast<std::int64_t>(usage.ru_maxrss) * 1024);
  }
  // Orphans of the job that ended by themselves: as the subreaper, the launcher is their parent. WNOWAIT, because the
  // next child may be a rank or a child from before the job, which must not be reaped here.
  siginfo_t info{};
  while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0) {
    const pid_t pid = info.si_pid;
    if (is_known(pid)) {
      reap_orphans_behind();
      break;
    }
    waitpid(pid, nullptr, WNOHANG);
    info = {};
  }
  guardian_.forget_empty_groups();
}

void Supervisor::on_end(Rank& rank, int wait_status, std::int64_t peak_bytes) {
  auto& outcome = rank.outcome;
  read_reports(rank);
  outcome.wait_status = wait_status;
  outcome.answered =
      options_.answer_code != 0 && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == options_.answer_code;
  outcome.peak_bytes = peak_bytes;
  outcome.told_to_stop = term_sent_ || kill_sent_ || stop_signal_ != 0;
  if (!outcome.reported) outcome.failed_at = Clock::now();
  rank.pidfd = {};
  guardian_.ended(outcome.pid);
  outcome.killed_by_launcher = kill_sent_ && WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
  if (!failed(outcome) || ended_as_told(outcome)) return;
  some_failure_ = true;
  if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGXFSZ)
    outcome.kernel_note = fmt::format("a file of it grew to {}", base::file_size_limit());
  if (WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL && !kill_sent_) {
    const auto kills = cgroup_.oom_kills();
    if (kills && oom_kills_before_ && *kills > *oom_kills_before_) {
      outcome.kernel_note =
          fmt::format("the kernel's out-of-memory killer ended it at {}", base::human_bytes(peak_bytes));
      if (const auto limit = cgroup_.memory_limit_bytes())
        outcome.kernel_note += fmt::format(" (limit {})", base::human_bytes(static_cast<std::int64_t>(*limit)));
    }
  }
}

void Supervisor::act_on_failure() {
  if (!some_failure_) return;
  const auto now = Clock::now();
  const bool own_failure = std::ranges::any_of(ranks_, [](const Rank& rank) {
    return failed(rank.outcome) && !rank.outcome.consequence && !ended_as_told(rank.outcome);
  });
  // Also when the last rank here has ended already: the recorders say what it and the other machines' ranks waited for.
  if (!own_failure && !ended_elsewhere_) look_for_hang();
  if (!any_alive()) return;
  const bool known = own_failure || hang_ || ended_elsewhere_;
  const auto settled = now + (known ? kSettle : std::chrono::milliseconds(kSettleConsequence));
  stop_at_ = stop_at_ ? std::min(*stop_at_, settled) : settled;
  if (!term_sent_ && now >= *stop_at_) {
    term_sent_ = true;
    grace_ = hang_ ? std::min(options_.grace, kGraceOfTheStuck) : options_.grace;
    // These ranks cannot save, because a checkpoint needs the ranks that are gone.
    if (ended_elsewhere_) grace_ = std::min(grace_, kGraceWithoutOthers);
    kill_at_ = now + grace_;
    // If the user has asked for a stop, the ranks are saving; a second signal would end them.
    const bool asked = ended_elsewhere_ && stop_signal_ != 0;
    for (const auto& rank : ranks_) {
      // A rank that has reported its failure is about to exit; a signal would only change its exit code.
      if (rank.alive() && !rank.outcome.reported && !asked) pass_on_stop(rank.outcome.pid, kOthersEnded);
    }
  }
  if (kill_at_ && now >= *kill_at_ && !kill_sent_) kill_ranks();
  if (kill_at_ && !wait_told_ && now >= *kill_at_ - grace_ + kStopPatience) {
    wait_told_ = true;
    std::vector<int> waited_for;
    for (const auto& rank : ranks_)
      if (rank.alive()) waited_for.push_back(rank.outcome.global_rank);
    if (!options_.quiet && !kill_sent_)
      say(fmt::format("the job failed; {} {} told to stop and {} killed after {}", name_ranks(waited_for),
                      waited_for.size() == 1 ? "was" : "were", waited_for.size() == 1 ? "is" : "are",
                      base::human_duration(grace_)));
  }
}

void Supervisor::say(const std::string& text) {
  // So that an unfinished progress line of rank 0 stays on its own line.
  if (isatty(1) != 0) out_.write("\n");
  err_.write(text.ends_with('\n') ? text : text + "\n");
}

}  // namespace trireme::launch
