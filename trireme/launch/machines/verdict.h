// Decides what a job of several machines does after a round (rendezvous.h): pure functions over the reports of the
// machines' launchers.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

namespace trireme::launch {

/// How one machine's ranks ended.
struct RoundResult {
  enum class Kind {
    done,         ///< all ranks succeeded
    over,         ///< stopped as asked
    refused,      ///< settings or files were refused: a restart would not help
    failed,       ///< a rank of this machine failed first
    consequence,  ///< ranks failed because ranks of other machines were gone
    lost,         ///< the machine is silent
  };
  Kind kind = Kind::done;
  std::string who = {};      ///< of a failure: "rank 3"; empty: no rank in particular
  std::string words = {};    ///< of a failure: equal for the same failure at the same step, on any rank
  std::string machine = {};  ///< its name
  bool is_known = true;  ///< of a failure: a step or a reason is; else equal words need not mean the same failure
  bool agreed = false;  ///< over, and all is saved: all ranks of the job had agreed on the stop
};

/// "rank 3 failed at step 7 (out of memory)".
std::string sentence_of(const RoundResult& result);

/// The text that launchers send each other. Errors    Error for malformed text
std::string text_of(const RoundResult& result);
RoundResult result_of(std::string_view text);

/// Earlier rounds, to recognise a repeated failure.
struct History {
  int restarts = 0;
  std::string failed_before = {};
};

struct Verdict {
  bool again = false;
  std::chrono::seconds pause{0};  ///< before the next round
  std::string why = {};  ///< a sentence for the user; empty: nothing to say
  bool refused = false;  ///< some ranks were refused: all launchers end with the exit code of a refusal
};

std::string text_of(const Verdict& verdict);
Verdict verdict_of(std::string_view text);

/// The pause before restart number `restarts` + 1: one second, two, four, at most sixty.
std::chrono::seconds pause_before_restart(int restarts);

/// The job goes on, unless all results are `done`, one is `over` or `refused`, the same known failure comes again (on
/// any rank), or `max_restarts` are used up. Updates `history`.
Verdict judge(std::span<const RoundResult> results, int max_restarts, History& history);

}  // namespace trireme::launch
