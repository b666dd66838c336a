// Finds and describes the first failure: pure functions over the ends of all ranks.
//
// The first exit is not always the first failure: a rank whose peer died may end before that peer is reaped. A rank
// that reported a consequence, or that the launcher told to end, is the headline only if no other rank failed.
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
  std::chrono::steady_clock::time_point failed_at{};  ///< the time of its report or, without one, of its end
  std::optional<std::string> reported;  ///< report_failure's message
  bool refused = false;                 ///< the report is a refusal, which the launcher prints
  bool is_on_screen = false;            ///< which the rank has printed, too, where the user sees it
  bool consequence = false;             ///< the report says that another rank failed before
  bool answered = false;                ///< its exit code is LaunchOptions::answer_code
  bool timed_out = false;               ///< the report says that another rank did not join in time
  bool told_to_stop = false;            ///< ended after the launcher sent it SIGTERM
  bool killed_by_launcher = false;      ///< SIGKILL after the grace period or a second Ctrl-C
  std::string status;                   ///< report_status' latest text, "step 812"
  std::string last_line;                ///< of its output
  std::string log_path;                 ///< empty when there is no log
  std::string kernel_note;              ///< why the kernel ended it, if known: memory, file sizes
  std::int64_t peak_bytes = 0;          ///< its largest resident memory; 0: unknown
};

/// Whether the rank has failed, or has reported that it is about to. An early stop is no failure.
bool failed(const RankOutcome& outcome);

/// Whether the rank ended as the launcher asked: by the signal sent, or with success after it.
bool ended_as_told(const RankOutcome& outcome);

/// The rank that failed first by itself; else the first consequence; null if no rank failed.
const RankOutcome* first_failure(std::span<const RankOutcome> outcomes);

/// The whole report, several lines with a final newline, of a job whose first failure is `first`.
std::string describe_failure(const RankOutcome& first, std::span<const RankOutcome> outcomes,
                             std::chrono::milliseconds elapsed, std::chrono::milliseconds grace);

/// The same for a hang: ranks waited for one that did not join. `status` is what the job did: "step 812".
std::string describe_hang(const HangVerdict& verdict, std::span<const RankOutcome> outcomes,
                          std::chrono::milliseconds elapsed, std::string_view status);

/// "rank 3", "ranks 0, 1, 3", "ranks 0-6, 9".
std::string name_ranks(const std::vector<int>& ranks);

/// The last line of `output` that is not blank, without escape sequences, cut to what fits a report.
std::string last_line_of(std::string_view output);

}  // namespace trireme::launch
