// The part of supervisor.h that comes when all ranks have ended: the last output, the report, the exit code.
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>

#include "trireme/base/text.h"
#include "trireme/launch/stop_signal.h"
#include "trireme/launch/supervisor.h"

namespace trireme::launch {
namespace {

constexpr int kUsageError = 2;

// The same for the same failure at the same step: no process ids, no times.
std::string in_few_words(const RankOutcome& outcome) {
  const int status = *outcome.wait_status;
  const std::string how = outcome.reported      ? *outcome.reported
                          : WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                                : fmt::format("exit code {}", WEXITSTATUS(status));
  return fmt::format("failed{}{} ({})", outcome.status.empty() ? "" : " at ", outcome.status,
                     how.substr(0, how.find('\n')));
}

}  // namespace

void Supervisor::drain() {
  for (auto& rank : ranks_) {
    read_reports(rank);
    for (auto& stream : rank.streams) {
      while (stream.fd >= 0) {
        pollfd ready{stream.fd, POLLIN, 0};
        if (poll(&ready, 1, 0) != 1) break;
        read_stream(rank, stream);
      }
      stream.show_unfinished();
    }
    rank.outcome.last_line = last_line_of(rank.tail);
  }
}

std::string Supervisor::describe_recorders() const {
  return fmt::format("  the ranks' recorders are in {}: trireme report hang {}\n",
                     base::flight_folder(options_.out_dir).string(), options_.out_dir.string());
}

int Supervisor::report(std::optional<Failure>& failure) {
  std::vector<RankOutcome> outcomes;
  for (const auto& rank : ranks_) outcomes.push_back(rank.outcome);
  const auto code_of = [](const RankOutcome& outcome) {
    const int status = *outcome.wait_status;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  };
  if (kill_requested_) {
    say(fmt::format("killed at once after {}, as asked; nothing was saved since the last checkpoint",
                    base::human_duration(Clock::now() - started_)));
    return 128 + stop_signal_;
  }
  const auto* first = first_failure(outcomes);
  const bool unbegun = stop_signal_ != 0 && (ended_unbegun_ || num_started_ < options_.num_ranks);
  if (unbegun && (first == nullptr || first->consequence)) {
    say(fmt::format("stopped by {} before the first step, with nothing saved{}", name_of_stop(stop_signal_),
                    num_started_ < options_.num_ranks
                        ? fmt::format(": {} of {} ranks had been started", num_started_, options_.num_ranks)
                        : ""));
    return kStoppedEarly;
  }
  if (first != nullptr) {
    const int code = code_of(*first);
    if (code == kUsageError) {
      // Rank 0's message is on the screen already; another rank's may not be.
      const auto refused_alike = [&](const Rank& rank) {
        return code_of(rank.outcome) == kUsageError ||
               (first->reported && rank.tail.find(*first->reported) != std::string::npos);
      };
      const bool seen = std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
        return rank.streams.front().screen != nullptr && refused_alike(rank);
      });
      const auto& rank = ranks_[static_cast<std::size_t>(first->global_rank - first_rank())];
      if (!seen) say(first->reported && rank.tail.empty() ? *first->reported : rank.tail);
      return kUsageError;
    }
    const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(first->failed_at - started_);
    const bool is_hang = hang_ && first->consequence;
    std::string text = is_hang ? describe_hang(*hang_, outcomes, elapsed, first->status)
                               : describe_failure(*first, outcomes, elapsed, grace_);
    text += is_hang ? describe_recorders() : first->consequence ? silent_ : std::string();
    if (options_.failure_hint) {
      if (const auto hint = options_.failure_hint(); !hint.empty()) text += "  " + hint + "\n";
    }
    say(text);
    if (stop_signal_ == 0)
      failure = is_hang ? Failure{.words = hang_->key}
                        : Failure{.who = fmt::format("rank {}", first->global_rank),
                                  .words = in_few_words(*first),
                                  .is_consequence = first->consequence};
    return code == 0 || code == kStoppedEarly ? 1 : code;
  }
  // Ranks that have stopped and saved agreed on it with those elsewhere, whose launchers were only quicker to say so.
  const bool agreed = std::all_of(outcomes.begin(), outcomes.end(),
                                  [&](const RankOutcome& outcome) { return code_of(outcome) == kStoppedEarly; });
  if (ended_elsewhere_ && stop_signal_ == 0 && !agreed) {
    failure = Failure{.words = "its ranks were stopped", .is_consequence = true};
    return 1;
  }
  std::vector<int> unsaved;
  bool saved = false;
  for (const auto& outcome : outcomes) {
    if (WIFSIGNALED(*outcome.wait_status) || code_of(outcome) > 128) unsaved.push_back(outcome.global_rank);
    saved |= code_of(outcome) == kStoppedEarly;
  }
  if (!unsaved.empty()) {
    say(fmt::format("{} ended by the signal before saving", name_ranks(unsaved)));
    return 128 + stop_signal_;
  }
  if (saved) return kStoppedEarly;
  const bool answered = std::any_of(outcomes.begin(), outcomes.end(), [](const RankOutcome& o) { return o.answered; });
  return answered ? options_.answer_code : 0;
}

}  // namespace trireme::launch
