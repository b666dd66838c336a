// What becomes of a job of several machines when a round of its ranks has ended: pure functions over what each
// machine's launcher says of its own.
#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

/// What came of one machine's ranks.
struct RoundResult {
  enum class Kind {
    done,         ///< all ranks succeeded
    over,         ///< stopped as asked, or their settings were refused: nothing to try again
    failed,       ///< by itself
    consequence,  ///< because ranks elsewhere were gone
    lost,         ///< nothing is known of the machine any more
  };
  Kind kind = Kind::done;
  std::string who = {};      ///< of a failure: "rank 3", or nobody in particular
  std::string words = {};    ///< of a failure: the same for the same failure at the same step, whoever had it first
  std::string machine = {};  ///< its name
  bool agreed = false;  ///< over, and all is saved: ranks elsewhere do the same by themselves; not told to others
};

/// "rank 3 failed at step 7 (out of memory)".
std::string sentence_of(const RoundResult& result);

/// As text between launchers. Errors    Error where it is none
std::string text_of(const RoundResult& result);
RoundResult result_of(std::string_view text);

/// What happened before, for failures that come again.
struct History {
  int restarts = 0;
  std::string failed_before = {};
};

struct Verdict {
  bool again = false;
  std::chrono::seconds pause{0};  ///< before the next round
  std::string why = {};  ///< a sentence for the user; empty: nothing to say
};

std::string text_of(const Verdict& verdict);
Verdict verdict_of(std::string_view text);

/// How long to wait before restart number `restarts` + 1: a second, two, four, at most sixty.
std::chrono::seconds pause_before_restart(int restarts);

/// The job goes on unless all are done, one is over, a failure comes again in the same words, whichever rank had it
/// first, or `max_restarts` are used up; `history` is brought up to date.
Verdict judge(std::span<const RoundResult> results, int max_restarts, History& history);

}  // namespace trireme::launch
