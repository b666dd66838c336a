// The part of supervisor.h that reports: what silent ranks do; when all ranks have ended, their last output, the report
// and the exit code.
#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "trireme/base/log.h"
#include "trireme/base/process.h"
#include "trireme/base/text.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/launch/supervise/supervisor.h"

namespace trireme::launch {
namespace {
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

// Looks before the stuck rank is ended.
void Supervisor::look_for_hang() {
  const bool timed_out = std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.outcome.timed_out; });
  if (looked_for_hang_ || !timed_out) return;
  looked_for_hang_ = true;
  if (!options_.out_dir.empty()) hang_ = launch::look_for_hang(base::flight_folder(options_.out_dir));
  if (!hang_) silent_ = describe_silent_ranks();
}

// For those who ask when no rank is left (trireme report hang).
void Supervisor::keep_verdict() const {
  try {
    base::write_file_atomic(base::flight_folder(options_.out_dir) / kVerdictName,
                            fmt::format("hang: {}\n{}", hang_->sentence, hang_->details));
  } catch (const std::exception& error) {
    base::warn("trireme report hang will not know why the job ended: {}", error.what());
  }
}

// What the ranks do that have not given up; for jobs without recorders, and before ranks have met.
std::string Supervisor::describe_silent_ranks() const {
  constexpr std::size_t kFrames = 24;
  std::vector<ProcessId> ids;
  std::vector<int> names;
  for (const auto& rank : ranks_) {
    if (!rank.alive() || rank.outcome.reported) continue;
    ids.push_back({rank.outcome.pid, base::process_start_ticks(rank.outcome.pid).value_or(0)});
    names.push_back(rank.outcome.global_rank);
  }
  const auto looks = look_at(ids);
  std::string text;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string stack = describe_stack(stack_of(ids[i].pid, kFrames));
    text += fmt::format("  rank {} (pid {}) {}{}{}\n", names[i], ids[i].pid, describe(looks[i]),
                        stack.empty() ? "" : "; its stack: ", stack);
  }
  return text;
}

void Supervisor::drain() {
  for (auto& rank : ranks_) {
    read_reports(rank);
    for (auto& stream : rank.streams) {
      while (stream.fd.get() >= 0 && read_stream(rank, stream)) continue;
      stream.show_unfinished();
    }
    rank.outcome.last_line = last_line_of(rank.tail);
  }
}

// Each refusal once; with the ranks' names if they differ.
void Supervisor::say_refusals(std::span<const RankOutcome> outcomes) {
  std::vector<std::pair<std::string_view, std::vector<int>>> refusals;
  for (const auto& outcome : outcomes) {
    if (!outcome.refused) continue;
    auto same =
        std::ranges::find(refusals, std::string_view(*outcome.reported), &decltype(refusals)::value_type::first);
    if (same == refusals.end()) same = refusals.insert(same, {*outcome.reported, {}});
    same->second.push_back(outcome.global_rank);
  }
  for (const auto& [text, ranks] : refusals)
    say((refusals.size() > 1 ? name_ranks(ranks) + ": " : "") + base::error_text(text));
}

int Supervisor::report(std::optional<Failure>& failure) {
  std::vector<RankOutcome> outcomes;
  for (const auto& rank : ranks_) {
    outcomes.push_back(rank.outcome);
    outcomes.back().is_on_screen = rank.outcome.reported && rank.streams.front().screen != nullptr &&
                                   rank.tail.find(*rank.outcome.reported) != std::string::npos;
  }
  const auto code_of = [](const RankOutcome& outcome) {
    const int status = *outcome.wait_status;
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  };
  if (kill_requested_) {
    say(fmt::format("killed at once after {}, as asked{}", base::human_duration(Clock::now() - started_),
                    options_.saves ? "; nothing was saved since the last checkpoint" : ""));
    return 128 + stop_signal_;
  }
  const auto* first = first_failure(outcomes);
  const bool unbegun = stop_signal_ != 0 && (ended_unbegun_ || num_started_ < options_.num_ranks);
  if (unbegun && (first == nullptr || first->consequence)) {
    say(fmt::format("stopped by {} before {}{}", name_of_stop(stop_signal_),
                    options_.saves ? "the first step, with nothing saved" : "anything began",
                    num_started_ < options_.num_ranks
                        ? fmt::format(": {} of {} ranks had been started", num_started_, options_.num_ranks)
                        : ""));
    return kStoppedEarly;
  }
  if (first != nullptr) {
    const int code = code_of(*first);
    if (code == kUsageError && first->refused) {
      say_refusals(outcomes);
      return kUsageError;
    }
    if (code == kUsageError) {
      // A message on a shown stream is on the screen already.
      const auto refused_alike = [&](const Rank& rank) {
        return code_of(rank.outcome) == kUsageError ||
               (first->reported && rank.tail.find(*first->reported) != std::string::npos);
      };
      const bool seen = std::ranges::any_of(
          ranks_, [&](const Rank& rank) { return rank.streams.front().screen != nullptr && refused_alike(rank); });
      const auto& rank = ranks_[static_cast<std::size_t>(first->global_rank - first_rank())];
      if (!seen) say(first->reported && rank.tail.empty() ? *first->reported : rank.tail);
      return kUsageError;
    }
    const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(first->failed_at - started_);
    const bool is_hang = hang_ && first->consequence;
    if (is_hang) keep_verdict();
    std::string text = is_hang ? describe_hang(*hang_, outcomes, elapsed, first->status)
                               : describe_failure(*first, outcomes, elapsed, grace_);
    if (is_hang)
      text +=
          fmt::format("  the ranks' recorders are in {}: trireme report hang {}\n",
                      base::flight_folder(options_.out_dir).string(), base::shell_quoted(options_.out_dir.string()));
    else if (first->consequence)
      text += silent_;
    if (options_.failure_hint) {
      if (const auto hint = options_.failure_hint(); !hint.empty()) text += "  " + hint + "\n";
    }
    say(text);
    if (stop_signal_ == 0)
      failure = is_hang ? Failure{.words = hang_->key}
                        : Failure{.who = fmt::format("rank {}", first->global_rank),
                                  .words = in_few_words(*first),
                                  .is_consequence = first->consequence,
                                  // A program that is not ours tells no step: it may have come further than before.
                                  .is_known = options_.executable.empty() || first->reported || !first->status.empty()};
    return code == 0 || code == kStoppedEarly ? 1 : code;
  }
  // If all ranks here have stopped and saved, the ranks of all machines had agreed on it. Ranks that had not begun have
  // met nobody: they stopped because others were gone.
  const bool stopped =
      std::ranges::all_of(outcomes, [&](const RankOutcome& outcome) { return code_of(outcome) == kStoppedEarly; });
  if (ended_elsewhere_ && stop_signal_ == 0 && (!stopped || is_unbegun())) {
    failure = Failure{.words = "its ranks were stopped", .is_consequence = true};
    return stopped ? kStoppedEarly : 1;
  }
  std::vector<int> unsaved;
  bool saved = false;
  for (const auto& outcome : outcomes) {
    if (WIFSIGNALED(*outcome.wait_status) || code_of(outcome) > 128) unsaved.push_back(outcome.global_rank);
    saved |= code_of(outcome) == kStoppedEarly;
  }
  if (!unsaved.empty()) {
    say(fmt::format("{} ended by the signal{}", name_ranks(unsaved), options_.saves ? " before saving" : ""));
    return 128 + stop_signal_;
  }
  if (saved) return kStoppedEarly;
  return std::ranges::any_of(outcomes, &RankOutcome::answered) ? options_.answer_code : 0;
}

}  // namespace trireme::launch
