// trireme report: what a job has left behind says about its end.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/units.h"
#include "trireme/cli/command.h"
#include "trireme/launch/hang.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReportUsage =
    "trireme report hang FOLDER            who waits for whom in the job that runs, or ran, in this out_dir; of a job "
    "that\n"
    "                                      was killed from outside too\n"
    "    --calls N                         also each rank's last N calls  [0]\n"
    "\n"
    "Exit code 0: no rank waits for another for long; 1: a hang; 2: there is nothing to look at.\n";

struct HangWords {
  fs::path folder;
  std::size_t calls = 0;
};

HangWords read_hang_words(Arguments arguments) {
  HangWords words;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string word = arguments[i];
    if (!word.starts_with("--")) {
      if (!words.folder.empty())
        throw UsageError(fmt::format("error: one folder, not {} as well\n{}", word, kReportUsage));
      words.folder = word;
      continue;
    }
    const bool has_value = word.starts_with("--calls=");
    if (word != "--calls" && !has_value)
      throw UsageError(fmt::format("error: trireme report hang has no {}\n{}", word, kReportUsage));
    if (!has_value && i + 1 == arguments.size()) throw UsageError("error: --calls needs a value");
    const std::string value = has_value ? word.substr(8) : arguments[++i];
    const auto calls = base::parse_count(value);
    if (!calls) throw UsageError(fmt::format("error: --calls {} is not a number of calls", value));
    words.calls = static_cast<std::size_t>(*calls);
  }
  if (words.folder.empty())
    throw UsageError(fmt::format("error: trireme report hang needs a run's folder\n{}", kReportUsage));
  return words;
}

// What was said while the ranks lived, where none is left of them: a rank that was stopped goes on when its job is
// ended, and its recorder with it. Empty where a rank lives or nothing was said.
std::string said_in_time(const fs::path& folder, std::span<const launch::RankView> ranks) {
  const auto ended = [](const launch::RankView& rank) {
    return rank.process && (rank.process->state == 0 || rank.process->state == 'Z');
  };
  const fs::path file = folder / launch::kVerdictName;
  return std::ranges::all_of(ranks, ended) && fs::exists(file) ? base::read_file(file) : "";
}

int report_hang(Arguments arguments) {
  const HangWords words = read_hang_words(arguments);
  const fs::path inside = base::flight_folder(words.folder);
  const fs::path folder = fs::exists(inside) ? inside : words.folder;
  std::vector<launch::RankView> ranks = launch::view_ranks(folder);
  if (ranks.empty())
    throw UsageError(
        fmt::format("error: {} holds no flight recorder's files (flight/rank0.flight); name the out_dir of a job of "
                    "several ranks",
                    words.folder.string()));
  for (launch::RankView& rank : ranks) launch::add_stack(rank);
  const std::int64_t now = launch::time_of_view(ranks);
  constexpr std::int64_t kShortUs = 1'000'000;  // ranks that are well wait for each other all the time
  auto verdict = launch::find_hang(ranks, now);
  const bool gave_up = std::ranges::any_of(ranks, [](const auto& rank) { return rank.log.header.gave_up_us != 0; });
  if (verdict && verdict->waited_us < kShortUs && !gave_up) verdict.reset();
  const std::string said = said_in_time(folder, ranks);
  if (!said.empty())
    fmt::print("{}", said);
  else if (verdict)
    fmt::print("hang: {}\n{}", verdict->sentence, verdict->details);
  else
    fmt::print("no rank waits for another for long\n");
  fmt::print("{}", launch::describe_ranks(ranks, now));
  if (words.calls > 0)
    for (const launch::RankView& rank : ranks)
      fmt::print("rank {}, its last calls:\n{}", rank.log.header.global_rank,
                 launch::describe_calls(rank.log, words.calls));
  return verdict || !said.empty() ? 1 : 0;
}

}  // namespace

int run_report(Arguments arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    fmt::print("{}", kReportUsage);
    return arguments.empty() ? 2 : 0;
  }
  if (arguments[0] != "hang")
    throw UsageError(fmt::format("error: trireme report knows no {}\n{}", arguments[0], kReportUsage));
  return report_hang(arguments.subspan(1));
}

}  // namespace trireme::cli
