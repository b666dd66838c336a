// A reward that a program of the user computes (docs/rewards.md). It reads a line of JSON for each answer from its
// standard input, and prints a line with a number, or null, for each.
#pragma once

#include <memory>
#include <string>

#include "trireme/rewards/reward.h"

namespace trireme::rewards {

/// Keeps one process for all calls. The process leads a group of its own, which is killed at the end, after a failure,
/// and by a second signal that asks for a stop. If this process is killed, the kernel kills the program, and a launcher
/// what that has started. A program that has ended is started once more for the same answers; somebody may have killed
/// it. After any other failure the next call starts it anew.
///
/// Answers   {"prompt", "completion", "step", "prompt_number", "sample", "tokens", "truncated", "row"}, where `row` has
///           the other keys of the prompt's line
/// Errors    Failure in one sentence: the program cannot be started, ends, is late, prints what is no number, or more
///           than 1 MiB for the answers to one prompt. Error, which ends the run: it printed more lines than it read,
///           or was late for three prompts in a row
class ProgramReward : public Reward {
 public:
  /// Errors    UsageError: there is no such program
  explicit ProgramReward(const RewardSettings& settings);
  ~ProgramReward() override;
  const std::string& name() const override;
  /// The calling thread must outlive the process: the process is killed when the thread ends.
  Scores score(std::span<const Answer> answers, int64_t step, const GivesUp& gives_up = {}) override;

 private:
  class Process;

  RewardSettings settings_;
  std::string file_;
  std::unique_ptr<Process> process_;
  int late_ = 0;  ///< prompts in a row for which the program took too long
};

}  // namespace trireme::rewards
