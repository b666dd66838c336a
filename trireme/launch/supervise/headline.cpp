#include "trireme/launch/supervise/headline.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/text.h"
#include "trireme/launch/hang/hang.h"
#include "trireme/launch/supervise/stop_signal.h"

namespace trireme::launch {
namespace {
using namespace std::chrono_literals;

// A dying process closes its sockets shortly before its parent is told, so its peers may seem to fail first.
constexpr auto kSimultaneous = 250ms;
constexpr std::size_t kMaxLineChars = 300;

bool killed_by_signal(const RankOutcome& outcome) { return outcome.wait_status && WIFSIGNALED(*outcome.wait_status); }

std::string describe_signal(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("signal {} (SIG{})", number, name);
}

std::string describe_end(const RankOutcome& outcome) {
  if (!outcome.wait_status) return "is still running";
  if (WIFSIGNALED(*outcome.wait_status)) {
    const auto name = describe_signal(WTERMSIG(*outcome.wait_status));
    return fmt::format("was killed by {}", outcome.killed_by_launcher ? name + " after the grace period" : name);
  }
  return fmt::format("exited with code {}", WEXITSTATUS(*outcome.wait_status));
}

bool caused(const RankOutcome& outcome) { return failed(outcome) && !outcome.consequence && !ended_as_told(outcome); }

// The reason in a rank's report of calls that do not match, which is the same on all ranks; else the whole report.
std::string_view reason_of(std::string_view reported) {
  const auto reason = reported.rfind(": different ");
  return reason == std::string_view::npos || !reported.starts_with("[comm] ") ? reported : reported.substr(reason);
}

// Whether a rank's last line is its report, which it prints after "error: ", perhaps cut.
bool says_the_same(std::string_view line, const std::string& reported) {
  if (line.starts_with("error: ")) line.remove_prefix(7);
  if (line.ends_with("...")) line.remove_suffix(3);
  return reported.find(line) != std::string::npos;
}

std::string indent(std::string text, std::string_view by) {
  for (auto at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) text.insert(at + 1, by);
  return text;
}
}  // namespace

bool failed(const RankOutcome& outcome) {
  if (outcome.reported) return true;
  if (!outcome.wait_status || outcome.answered) return false;
  if (WIFSIGNALED(*outcome.wait_status)) return true;
  const int code = WEXITSTATUS(*outcome.wait_status);
  return code != 0 && code != kStoppedEarly;
}

// The launcher passes SIGUSR1 on as it is, and other requests to stop as SIGTERM.
bool ended_as_told(const RankOutcome& outcome) {
  if (outcome.reported || !outcome.wait_status || !outcome.told_to_stop) return false;
  if (WIFEXITED(*outcome.wait_status)) {
    const int code = WEXITSTATUS(*outcome.wait_status);
    return code == 0 || code == kStoppedEarly || code == 128 + SIGTERM || code == 128 + SIGUSR1;
  }
  const int number = WTERMSIG(*outcome.wait_status);
  return number == SIGTERM || number == SIGUSR1 || (number == SIGKILL && outcome.killed_by_launcher);
}

const RankOutcome* first_failure(std::span<const RankOutcome> outcomes) {
  const auto earliest = [&](const auto& counts) {
    const RankOutcome* first = nullptr;
    for (const auto& outcome : outcomes)
      if (counts(outcome) && (first == nullptr || outcome.failed_at < first->failed_at)) first = &outcome;
    return first;
  };
  const RankOutcome* first = earliest(caused);
  if (first == nullptr) return earliest([](const auto& outcome) { return outcome.consequence; });
  if (!first->reported && !killed_by_signal(*first)) {
    // It exited with an error but reported no reason. A rank that was killed at the same time is the likelier cause.
    const auto limit = first->failed_at + kSimultaneous;
    const RankOutcome* killed = earliest(
        [&](const auto& outcome) { return caused(outcome) && killed_by_signal(outcome) && outcome.failed_at < limit; });
    if (killed != nullptr) first = killed;
  }
  return first;
}

std::string describe_hang(const HangVerdict& verdict, std::span<const RankOutcome> outcomes,
                          std::chrono::milliseconds elapsed, std::string_view status) {
  std::string text = fmt::format("job failed after {}{}{}: hang: {}\n{}", base::human_duration(elapsed),
                                 status.empty() ? "" : " at ", status, verdict.sentence, verdict.details);
  for (const auto& outcome : outcomes)
    if (std::ranges::find(verdict.stuck, outcome.global_rank) != verdict.stuck.end() && !outcome.log_path.empty())
      text += outcome.last_line.empty()
                  ? fmt::format("  log {}\n", outcome.log_path)
                  : fmt::format("  last line: \"{}\"; log {}\n", outcome.last_line, outcome.log_path);
  return text;
}

std::string describe_failure(const RankOutcome& first, std::span<const RankOutcome> outcomes,
                             std::chrono::milliseconds elapsed, std::chrono::milliseconds grace) {
  std::string text = fmt::format("job failed after {}", base::human_duration(elapsed));
  if (!first.status.empty()) text += fmt::format(" at {}", first.status);
  text += fmt::format(": rank {} (pid {})", first.global_rank, first.pid);
  if (first.is_on_screen)
    text +=
        fmt::format(" {}, as it says above; it then {}\n", first.timed_out ? "gave up" : "failed", describe_end(first));
  else if (first.reported)
    text += fmt::format(": {}\n  it then {}\n", indent(*first.reported, "    "), describe_end(first));
  else
    text += fmt::format(" {}\n", describe_end(first));
  if (!first.kernel_note.empty())
    text += fmt::format("  {}\n", first.kernel_note);
  else if (killed_by_signal(first) && first.peak_bytes > 0)
    text += fmt::format("  it had at most {} of memory\n", base::human_bytes(first.peak_bytes));
  std::string where = first.log_path.empty() ? "" : fmt::format("log {}", first.log_path);
  if (!first.last_line.empty() && !(first.reported && says_the_same(first.last_line, *first.reported)))
    where = fmt::format("last line: \"{}\"{}{}", first.last_line, where.empty() ? "" : "; ", where);
  if (!where.empty()) text += fmt::format("  {}\n", where);

  std::vector<int> stopped, killed, ended_before, alike;
  std::string others;
  for (const auto& outcome : outcomes) {
    if (&outcome == &first) continue;
    if (caused(outcome)) {
      if (first.reported && outcome.reported && reason_of(*first.reported) == reason_of(*outcome.reported)) {
        alike.push_back(outcome.global_rank);
      } else {
        others += fmt::format("  rank {} (pid {}) failed too: it {}{}\n", outcome.global_rank, outcome.pid,
                              describe_end(outcome),
                              outcome.reported ? ": " + indent(*outcome.reported, "    ") : std::string());
      }
    } else if (outcome.killed_by_launcher) {
      killed.push_back(outcome.global_rank);
    } else if (!outcome.told_to_stop && !failed(outcome)) {
      ended_before.push_back(outcome.global_rank);
    } else {
      stopped.push_back(outcome.global_rank);
    }
  }
  if (!alike.empty()) text += fmt::format("  {} failed alike\n", name_ranks(alike));
  text += others;
  if (!ended_before.empty()) text += fmt::format("  {} had ended before, normally\n", name_ranks(ended_before));
  if (!stopped.empty())
    text += first.consequence
                ? fmt::format("  {} stopped too\n", name_ranks(stopped))
                : fmt::format("  {} then stopped because rank {} was gone\n", name_ranks(stopped), first.global_rank);
  if (!killed.empty())
    text += fmt::format("  {} did not stop within {} and {} killed\n", name_ranks(killed), base::human_duration(grace),
                        killed.size() == 1 ? "was" : "were");
  return text;
}

std::string name_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t kShortestRun = 4;  // "0, 1, 2" reads better than "0-2"
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i >= kShortestRun) {
      parts.push_back(fmt::format("{}-{}", ranks[i], ranks[end - 1]));
      i = end;
    } else {
      parts.push_back(std::to_string(ranks[i++]));
    }
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", base::join(parts, ", "));
}

std::string last_line_of(std::string_view output) {
  constexpr std::string_view kBlank = " \t\r\n";
  while (!output.empty() && kBlank.find(output.back()) != std::string_view::npos) output.remove_suffix(1);
  const auto before = output.find_last_of("\r\n");
  if (before != std::string_view::npos) output.remove_prefix(before + 1);
  std::string line;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output[i] == '\x1b' && i + 1 < output.size() && output[i + 1] == '[') {
      i += 2;
      while (i < output.size() && (output[i] < '@' || output[i] > '~')) ++i;
    } else if (static_cast<unsigned char>(output[i]) >= ' ' || output[i] == '\t') {
      line += output[i];
    }
  }
  line.erase(0, std::min(line.find_first_not_of(" \t"), line.size()));
  if (line.size() > kMaxLineChars) line = line.substr(0, kMaxLineChars) + "...";
  return line;
}

}  // namespace trireme::launch
