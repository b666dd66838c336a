// What a rank reports to its launcher: what it does, and why it is about to end.
//
// The headline of the launcher's report is the first failure. Exit codes cannot tell it from its consequences: a rank
// whose peer died also ends with an error, sometimes even sooner. So each rank says why it ends. Without a launcher
// these calls do nothing. They never block a healthy rank, never throw and never raise a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::launch {

/// Reports what this rank does, "step 812". The latest text appears in the headline if this rank fails.
/// Cost      one non-blocking send, about a microsecond; dropped if the launcher is behind
void report_status(std::string_view text) noexcept;

/// Reports that this process has loaded. Then the launcher may start more: a machine loads only a few at a time.
void report_loaded() noexcept;

/// Reports that from now on this rank has something to save at a stop. Until all ranks have reported this, a stop does
/// not wait for them.
void report_begun() noexcept;

/// Who caused a rank's end.
enum class Fault {
  own,
  lost_peer,  ///< another rank is gone (a CommError): the headline only if no rank has failed by itself
  timeout,  ///< another rank did not join in time: the launcher looks at what that rank does (hang.h)
};

/// Who caused a failed communication. Calls that do not match count as this rank's own failure: its peers in other
/// groups may report a lost connection before this rank has ended.
Fault fault_of(const CommError& error);

/// Makes the log lines of this process begin with "rank 2: " if another launcher shows all ranks on one screen.
void name_rank_in_log() noexcept;

/// Reports why this rank is about to exit with an error, in the words that the user will read.
void report_failure(std::string_view message, Fault fault = Fault::own) noexcept;

/// Reports that this rank refuses what the user has asked for, and is about to exit with code 2. The launcher prints
/// the message once, however many ranks refuse alike. Returns whether it has the message; otherwise the rank prints it.
bool report_refusal(std::string_view message) noexcept;

/// A report is one datagram on the socket that TRIREME_REPORT_FD names: this header, then a text. On a socket a message
/// arrives whole, and sending to a dead launcher is an error. On a pipe it would raise SIGPIPE.
enum class ReportKind : char {
  status = 's',  ///< text: what the rank does, "step 812"
  loaded = 'l',  ///< report_loaded()
  begun = 'b',  ///< report_begun()
  failure = 'f',  ///< text: why the rank is about to end
  refusal = 'r',  ///< the same, and the rank leaves it to the launcher to print it
  consequence = 'c',  ///< the same, after another rank's failure
  timeout = 't',  ///< the same, because another rank did not join in time
  exec_failed = 'x',  ///< text: the errno in decimal; sent between fork and exec
};

struct ReportHeader {
  ReportKind kind;
  std::int64_t monotonic_ns;  ///< CLOCK_MONOTONIC, which all processes of a host share
};

constexpr std::size_t kMaxReportText = 8192;  ///< longer texts are cut

}  // namespace trireme::launch
