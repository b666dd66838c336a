#include "trireme/launch/supervise/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/process.h"

namespace trireme::launch {
namespace {
constexpr std::size_t kAlwaysFits = 4096;  // PIPE_BUF: what a pipe that polls writable takes without blocking
constexpr std::size_t kLongestLine = 1 << 16;
constexpr std::chrono::seconds kLastChance{3};

bool writable_within(int fd, int timeout_ms) {
  pollfd ready{fd, POLLOUT, 0};
  return poll(&ready, 1, timeout_ms) == 1;
}
}  // namespace

void Screen::write(std::string_view text) {
  if (broken_) return;
  pending_ += text;
  flush();
}

void Screen::flush() {
  std::size_t done = 0;
  while (done < pending_.size() && writable_within(fd_, 0)) {
    const auto written = ::write(fd_, pending_.data() + done, std::min(kAlwaysFits, pending_.size() - done));
    if (written > 0) {
      done += static_cast<std::size_t>(written);
    } else if (written < 0 && errno == EAGAIN) {
      break;
    } else if (written < 0 && errno != EINTR) {
      broken_ = true;
      lost_ = errno;
      pending_.clear();
      return;
    }
  }
  pending_.erase(0, done);
}

void Screen::flush_before_exit(int signal_fd, bool is_result) {
  const auto end = std::chrono::steady_clock::now() + kLastChance;
  for (flush(); waiting() && (is_result || std::chrono::steady_clock::now() < end); flush()) {
    pollfd ready[2] = {{fd_, POLLOUT, 0}, {signal_fd, POLLIN, 0}};
    // A signal that comes after a failure is for what follows it: the job may start again.
    if (poll(ready, is_result ? 2 : 1, 100) <= 0 || ready[1].revents == 0) continue;
    signalfd_siginfo info{};
    while (read(signal_fd, &info, sizeof info) == static_cast<long>(sizeof info)) {
      if (info.ssi_signo == SIGTSTP)
        kill(getpid(), SIGSTOP);
      else
        is_result = false, lost_ = ECANCELED;
    }
    if (lost_ != 0) return;
  }
}

RankLog::RankLog(std::filesystem::path path) : path_(std::move(path)) {
  file_ = base::FileDescriptor(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (errno == EMFILE && file_.get() < 0)
    throw Error(fmt::format("launcher: cannot write the log {}: {}", path_.string(), base::why_no_descriptor(errno)));
  if (file_.get() < 0)
    throw UsageError(fmt::format("cannot write the log {}: {}; choose another --out_dir (trireme launch: --log_dir)",
                                 path_.string(), errno == ELOOP ? "it is a symbolic link" : std::strerror(errno)));
}

int RankLog::write(std::string_view text) {
  while (file_.get() >= 0 && !text.empty()) {
    const auto written = ::write(file_.get(), text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      const int error = errno;
      file_ = {};
      return error;
    }
  }
  return 0;
}

void link_to_log(const std::filesystem::path& link, const std::filesystem::path& log) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::file_status there = fs::symlink_status(link, error);
  if (fs::exists(there) && !fs::is_symlink(there))
    throw UsageError(fmt::format(
        "launch.log_link cannot replace {}, which is no link; give another name, or choose another --out_dir",
        link.string()));
  fs::remove(link, error);
  fs::create_symlink(log.lexically_relative(link.parent_path()), link, error);
  if (error)
    throw UsageError(fmt::format("cannot make {} lead to the log of rank 0: {}; leave launch.log_link out",
                                 link.string(), error.message()));
}

std::string RankStream::read() {
  char buffer[1 << 16];
  ssize_t got = -1;
  do {
    got = ::read(fd.get(), buffer, sizeof buffer);
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    show({buffer, static_cast<std::size_t>(got)});
    return {buffer, static_cast<std::size_t>(got)};
  }
  if (got == 0 || errno != EAGAIN) {
    show_unfinished();
    fd = {};
  }
  return "";
}

void RankStream::show(std::string_view text) {
  if (screen == nullptr) return;
  if (prefix.empty()) return screen->write(text);
  unfinished += text;
  std::string lines;
  std::size_t begin = 0;
  for (auto end = unfinished.find('\n'); end != std::string::npos; end = unfinished.find('\n', begin)) {
    lines += prefix;
    lines.append(unfinished, begin, end + 1 - begin);
    begin = end + 1;
  }
  unfinished.erase(0, begin);
  screen->write(lines);
  if (unfinished.size() > kLongestLine) show_unfinished();
}

void RankStream::show_unfinished() {
  if (screen == nullptr || unfinished.empty()) return;
  screen->write(fmt::format("{}{}\n", prefix, unfinished));
  unfinished.clear();
}

}  // namespace trireme::launch
