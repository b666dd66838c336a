// The wire between a rank and its launcher: one datagram a message on the socket that TRIREME_REPORT_FD names.
// A socket rather than a pipe, because a message then arrives whole and a dead launcher is an error, not a SIGPIPE.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::launch {

enum class ReportKind : char {
  status = 's',       ///< text: what the rank is doing, "step 812"
  loaded = 'l',       ///< the program is up
  begun = 'b',        ///< there is something to save
  failure = 'f',      ///< text: why the rank is about to end
  consequence = 'c',  ///< the same, but another rank failed first
  timeout = 't',      ///< the same, but another rank did not come
  exec_failed = 'x',  ///< text: the errno in decimal; sent between fork and exec
};

struct ReportHeader {
  ReportKind kind;
  std::int64_t monotonic_ns;  ///< CLOCK_MONOTONIC, which all processes of a host share
};

constexpr std::size_t kMaxReportText = 8192;  ///< longer texts are cut

}  // namespace trireme::launch
