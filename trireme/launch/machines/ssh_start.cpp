#include "trireme/launch/machines/ssh_start.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/launch/supervise/output.h"
#include "trireme/launch/supervise/spawn.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/launch/supervise/supervisor.h"

namespace trireme::launch {
namespace {
using Clock = std::chrono::steady_clock;

// After one machine has failed, the others have this time to detect it themselves and to log it.
constexpr std::chrono::seconds kNoticing{15};
// If a machine was never reached, no training has begun that the others could save.
constexpr std::chrono::seconds kEndOfUnbegun{2};
constexpr std::chrono::seconds kEndOfKilledSsh{10};  // a killed ssh that takes longer waits in the kernel
constexpr int kSshFailed = 255;

class SshSupervisor {
 public:
  explicit SshSupervisor(const SshJob& job) : job_(job), hosts_(job.hosts.size()) {}
  ~SshSupervisor() {
    for (Host& host : hosts_) end(host);
  }

  int run() {
    for (size_t i = 0; i < hosts_.size(); ++i) start(i);
    while (std::ranges::any_of(hosts_, &Host::alive)) {
      wait_for_event();
      act_on_time();
    }
    for (Host& host : hosts_)
      for (RankStream& stream : host.streams) {
        while (read_stream(stream)) continue;
        stream.show_unfinished();
      }
    const int code = job_code();
    for (Screen* screen : {&out_, &err_})
      screen->flush_before_exit(process_.signal_fd(), screen == &out_ && code == 0 && stop_signal_ == 0);
    if (code == 0 && out_.lost() != 0) base::throw_file_error("write", "standard output", out_.lost());
    return code;
  }

 private:
  struct Host {
    pid_t pid = 0;
    base::FileDescriptor input, pidfd;
    std::string unsent;  // of its order
    ssize_t sent_bytes = 0;
    std::vector<RankStream> streams;
    std::optional<int> code;
    std::optional<Clock::time_point> killed_at;
    bool has_begun = true;  // false: it was asked to stop before it had its whole order
    bool alive() const { return pid > 0 && !code; }
    // Whether ssh has taken nothing of the order: it does so once it has reached the machine.
    bool is_unreached() const {
      int unread = 0;
      return ioctl(input.get(), FIONREAD, &unread) == 0 && unread >= sent_bytes;
    }
  };

  void start(size_t number) {
    Host& host = hosts_[number];
    const SshJob::Host& told = job_.hosts[number];
    Pipe input, output(O_NONBLOCK), errors(O_NONBLOCK);
    SpawnRequest request{.executable = job_.ssh,
                         .arguments = {job_.ssh, "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "--",
                                       told.name, base::shell_quoted(job_.program) + " on_host"},
                         .stdin_fd = input.read_end.get(),
                         .stdout_fd = output.write_end.get(),
                         .stderr_fd = errors.write_end.get(),
                         .signal_mask = process_.mask_before()};
    for (char** entry = environ; *entry != nullptr; ++entry) request.environment.emplace_back(*entry);
    host.pid = spawn_rank(request);
    host.pidfd = base::FileDescriptor(open_pidfd(host.pid));
    host.input = std::move(input.write_end);
    fcntl(host.input.get(), F_SETFL, O_NONBLOCK);
    host.unsent = write_order(told.order);
    const std::string prefix = number == 0 ? "" : fmt::format("[{}] ", told.name);
    host.streams.push_back({.fd = std::move(output.read_end), .screen = &out_, .prefix = prefix});
    host.streams.push_back({.fd = std::move(errors.read_end), .screen = &err_, .prefix = prefix});
  }

  void wait_for_event() {
    std::vector<pollfd> ready{{process_.signal_fd(), POLLIN, 0}};
    for (const Host& host : hosts_) {
      if (host.alive()) ready.push_back({host.pidfd.get(), POLLIN, 0});
      if (!host.unsent.empty()) ready.push_back({host.input.get(), POLLOUT, 0});
      for (const RankStream& stream : host.streams)
        if (has_room_for(stream)) ready.push_back({stream.fd.get(), POLLIN, 0});
    }
    for (const Screen* screen : {&out_, &err_})
      if (screen->waiting()) ready.push_back({screen->fd(), POLLOUT, 0});
    poll(ready.data(), ready.size(), 200);
    read_signals();
    for (Host& host : hosts_) {
      send_order(host);
      for (RankStream& stream : host.streams)
        if (has_room_for(stream)) read_stream(stream);
      reap(host);
    }
    out_.flush();
    err_.flush();
  }

  void send_order(Host& host) {
    while (!host.unsent.empty()) {
      const ssize_t sent = write(host.input.get(), host.unsent.data(), host.unsent.size());
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (sent < 0) return host.unsent.clear();  // ssh has ended and reports why
      host.sent_bytes += sent;
      host.unsent.erase(0, static_cast<size_t>(sent));
    }
  }

  // What a screen does not take waits on its machine.
  static bool has_room_for(const RankStream& stream) { return stream.fd.get() >= 0 && !stream.screen->full(); }

  // True while there may be more.
  static bool read_stream(RankStream& stream) { return stream.fd.get() >= 0 && !stream.read().empty(); }

  void reap(Host& host) {
    int status = 0;
    if (!host.alive()) return;
    if (waitpid(host.pid, &status, WNOHANG) == host.pid) {
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      on_end(host, host.has_begun ? code : kStoppedEarly);
    } else if (host.killed_at && Clock::now() > *host.killed_at + kEndOfKilledSsh) {
      say(fmt::format("ssh (pid {}) was killed {} s ago and has not ended; it is no longer waited for", host.pid,
                      kEndOfKilledSsh.count()));
      on_end(host, 128 + SIGKILL);
    }
  }

  void on_end(Host& host, int code) {
    const bool is_unreached = code == kSshFailed && host.is_unreached();
    host.code = code;
    host.input = base::FileDescriptor();
    host.unsent.clear();
    if (*host.code == 0 || *host.code == kStoppedEarly || first_failed_ != nullptr) return;
    first_failed_ = &host;
    if (!is_unreached || stop_signal_ != 0) {
      stop_at_ = Clock::now() + kNoticing;
      return;
    }
    for (RankStream& stream : host.streams)  // ssh's own reason
      while (read_stream(stream)) continue;
    tell_failure();
    ask_to_stop();
    insist_at_ = Clock::now() + kEndOfUnbegun;
  }

  void read_signals() {
    signalfd_siginfo info{};
    while (read(process_.signal_fd(), &info, sizeof info) == static_cast<long>(sizeof info)) {
      if (info.ssi_signo == SIGTSTP) continue;  // machines elsewhere cannot be suspended from here
      const int number = static_cast<int>(info.ssi_signo);
      if (stop_signal_ == 0 || stop_signal_ == SIGUSR1) {
        if (number == stop_signal_) continue;
        const bool is_first = stop_signal_ == 0;
        stop_signal_ = number;
        stop_asked_at_ = Clock::now();
        if (!is_first) continue;
        say(fmt::format("stopping: all machines {}; a second signal ends the connections",
                        job_.saves ? "finish the step and save" : "are asked to end"));
        ask_to_stop();
      } else if (number == SIGUSR1 || Clock::now() - stop_asked_at_ < same_request(number, stop_signal_)) {
        continue;
      } else {
        end_connections();
      }
    }
  }

  void act_on_time() {
    const auto now = Clock::now();
    if (stop_at_ && now >= *stop_at_) ask_to_stop();
    if (insist_at_ && now >= *insist_at_) insist();
    if (end_at_ && now >= *end_at_) end_connections();
  }

  // Once: a second byte would end the machines' ranks at once.
  void ask_to_stop() {
    stop_at_.reset();
    if (std::exchange(is_asked_, true)) return;
    if (!end_at_) end_at_ = Clock::now() + 2 * job_.grace;  // the machine's own grace, and its launcher's
    for (Host& host : hosts_) {
      if (!host.alive() || host.killed_at) continue;
      host.has_begun = host.unsent.empty();
      if (host.has_begun)
        (void)!write(host.input.get(), "s", 1);
      else
        end(host);
    }
  }

  // The second byte ends a machine's ranks at once. An ssh that has not reached its machine by now is not waited for.
  void insist() {
    insist_at_.reset();
    for (Host& host : hosts_) {
      if (!host.alive() || host.killed_at) continue;
      host.has_begun = !host.is_unreached();
      if (host.has_begun)
        (void)!write(host.input.get(), "s", 1);
      else
        end(host);
    }
  }

  void end_connections() {
    end_at_.reset();
    for (Host& host : hosts_) end(host);
  }

  static void end(Host& host) {
    if (!host.alive() || host.killed_at) return;
    kill(host.pid, SIGKILL);
    host.killed_at = Clock::now();
  }

  void tell_failure() {
    if (std::exchange(is_told_, true)) return;
    const auto number = static_cast<size_t>(first_failed_ - hosts_.data());
    const std::string& name = job_.hosts[number].name;
    if (*first_failed_->code == kSshFailed)
      say(
          fmt::format("job failed: ssh to {} ended with its code 255; see what it says above, and that ssh {} true "
                      "works without a password",
                      name, name));
    else if (hosts_.size() > 1)
      say(fmt::format("job failed: {} was the first machine to fail, with exit code {}", name, *first_failed_->code));
  }

  int job_code() {
    if (first_failed_ != nullptr) {
      tell_failure();
      return *first_failed_->code == kSshFailed ? 1 : *first_failed_->code;  // 255 is no code of ours
    }
    const bool stopped = std::ranges::any_of(hosts_, [](const Host& h) { return h.code == kStoppedEarly; });
    return stopped ? kStoppedEarly : 0;
  }

  void say(const std::string& text) {
    err_.write(text + "\n");
    err_.flush();
  }

  const SshJob& job_;
  ProcessState process_;
  Screen out_{1}, err_{2};
  std::vector<Host> hosts_;
  Host* first_failed_ = nullptr;
  int stop_signal_ = 0;
  Clock::time_point stop_asked_at_;
  bool is_told_ = false;  // the failure
  bool is_asked_ = false;  // that machines stop
  std::optional<Clock::time_point> stop_at_, insist_at_, end_at_;
};
}  // namespace

std::string find_ssh() {
  if (const auto file = base::find_program_file("ssh")) return file->string();
  throw UsageError("error: launch.hosts starts machines by ssh, and there is no ssh on PATH; install openssh-client");
}

int start_by_ssh(const SshJob& job) { return SshSupervisor(job).run(); }

}  // namespace trireme::launch
