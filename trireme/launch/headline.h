// Which failure was the first, and how it is told: pure functions over what is known of each rank's end.
//
// Not the first exit: a rank whose peer vanished may end sooner than the peer is reaped. A rank that called itself a
// consequence, and a rank that ended because the launcher told it to, are the headline only if nothing else failed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::launch {

struct HangVerdict;  // hang.h

struct RankOutcome {
  int global_rank = 0;
  pid_t pid = 0;
  std::optional<int> wait_status;  ///< as wait(2) gives it; empty while the rank runs
  std::chrono::steady_clock::time_point failed_at{};  ///< its report or, without one, its end
  std::optional<std::string> reported;  ///< report_failure's message
  bool consequence = false;             ///< report_failure said so
  bool answered = false;                ///< its exit code is LaunchOptions::answer_code
  bool timed_out = false;               ///< likewise: another rank did not come
  bool told_to_stop = false;            ///< ended after the launcher sent it SIGTERM
  bool killed_by_launcher = false;      ///< SIGKILL after the grace period or a second Ctrl-C
  std::string status;                   ///< report_status' latest text, "step 812"
  std::string last_line;                ///< of its output
  std::string log_path;                 ///< empty when there is no log
  std::string kernel_note;              ///< why the kernel ended it, where that is known: memory, file sizes
  std::int64_t peak_bytes = 0;          ///< most memory that it had resident; 0: unknown
};

/// Whether the rank ended, or said that it will end, in any way but success or an early stop.
bool failed(const RankOutcome& outcome);

/// Whether it ended as the launcher asked: by the signal sent, or with success after it.
bool ended_as_told(const RankOutcome& outcome);

/// The rank that failed first by itself; else the first consequence; null when no rank failed.
const RankOutcome* first_failure(std::span<const RankOutcome> outcomes);

/// The whole report, several lines with a final newline, of a job whose first failure is `first`.
std::string describe_failure(const RankOutcome& first, std::span<const RankOutcome> outcomes,
                             std::chrono::milliseconds elapsed, std::chrono::milliseconds grace);

/// The same for a job whose ranks waited for one that did not come.
std::string describe_hang(const HangVerdict& verdict, std::span<const RankOutcome> outcomes,
                          std::chrono::milliseconds elapsed, std::string_view status);

/// "rank 3", "ranks 0, 1, 3", "ranks 0-6, 9".
std::string name_ranks(const std::vector<int>& ranks);

/// The last line of `output` that is not blank, without escape sequences, cut to what fits a report.
std::string last_line_of(std::string_view output);

}  // namespace trireme::launch
