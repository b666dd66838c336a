#include "trireme/launch/supervise/worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "trireme/base/log.h"
#include "trireme/launch/identity/environment.h"

namespace trireme::launch {
namespace {
constexpr int kMaxWaitMs = 1000;

// The socket from the launcher, or -1. This process's own children do not inherit it.
int open_report_socket() noexcept {
  const char* text = std::getenv("TRIREME_REPORT_FD");
  if (text == nullptr) return -1;
  int fd = -1;
  const char* end = text + std::strlen(text);
  if (const auto parsed = std::from_chars(text, end, fd); parsed.ec != std::errc() || parsed.ptr != end) return -1;
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_SEQPACKET) return -1;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

// Returns whether it is sent.
bool send_report(ReportKind kind, std::string_view text, bool may_wait) noexcept {
  static const int fd = open_report_socket();
  if (fd < 0) return false;
  const int errno_before = errno;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  ReportHeader header{kind, std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()};
  iovec parts[2] = {{&header, sizeof header}, {const_cast<char*>(text.data()), std::min(text.size(), kMaxReportText)}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  bool sent = false;
  while (!(sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !may_wait) break;
    pollfd writable{fd, POLLOUT, 0};
    if (poll(&writable, 1, kMaxWaitMs) <= 0) break;
  }
  errno = errno_before;
  return sent;
}
}  // namespace

void report_status(std::string_view text) noexcept { send_report(ReportKind::status, text, false); }

void report_loaded() noexcept { send_report(ReportKind::loaded, "", false); }

void report_begun() noexcept { send_report(ReportKind::begun, "", true); }

Fault fault_of(const CommError& error) {
  const auto& [operation, group, rank, peer, elapsed, timeout] = error.details;
  const std::string_view text = error.what();
  // These rules end the errors of calls that do not match (comm/call_descriptor.cpp and the message tasks).
  for (const char* rule :
       {"all ranks must make the same calls in the same order", "both must name the same size and dtype"})
    if (text.find(rule) != std::string_view::npos) return Fault::own;
  return timeout.count() > 0 && elapsed >= timeout ? Fault::timeout : Fault::lost_peer;
}

void name_rank_in_log() noexcept try {
  const RankEnvironment environment = rank_environment();
  if (environment.world_size > 1 && environment.launcher != "trireme")
    base::set_log_prefix(fmt::format("rank {}", environment.global_rank));
} catch (const std::exception&) {
  // Errors of the environment are reported elsewhere.
}

void report_failure(std::string_view message, Fault fault) noexcept {
  const ReportKind kind = fault == Fault::own       ? ReportKind::failure
                          : fault == Fault::timeout ? ReportKind::timeout
                                                    : ReportKind::consequence;
  send_report(kind, message, true);
}

bool report_refusal(std::string_view message) noexcept {
  return message.size() <= kMaxReportText && send_report(ReportKind::refusal, message, true);
}

}  // namespace trireme::launch
