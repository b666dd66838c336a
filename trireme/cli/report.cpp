// trireme report: how a job ended, from the files that it left.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/cli/command.h"
#include "trireme/config/parse.h"
#include "trireme/config/report.h"
#include "trireme/launch/hang/hang.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kReportUsage =
    "trireme report hang FOLDER            which rank waits for which, in the job that runs or ran in this out_dir; "
    "also\n"
    "                                      for a job that was killed\n"
    "\n"
    "Exit code 0: no rank waits long for another; 1: a hang; 2: there is nothing to look at.\n";

struct HangWords {
  fs::path folder;
  int64_t calls = 0;
};

config::Section section_of(HangWords& words) {
  return {.name = "",
          .title = "options",
          .rows = {{"calls",
                    &words.calls,
                    "also print this many of each rank's last calls",
                    {.unit = "calls", .at_least = 0, .example = "10"}}}};
}

std::string usage() {
  HangWords words;
  return fmt::format("{}\n{}", kReportUsage, config::help_text(config::Table({section_of(words)})));
}

// Nothing if help was asked for.
std::optional<HangWords> read_hang_words(Arguments arguments) {
  HangWords words;
  const config::Parsed parsed = config::parse(
      arguments, {.command = "report hang", .positional = "", .takes_list = true, .own = {section_of(words)}});
  if (parsed.help) return std::nullopt;
  if (parsed.list.empty())
    throw UsageError(fmt::format("error: trireme report hang needs a run's folder\n{}", usage()));
  if (parsed.list.size() > 1)
    throw UsageError(
        fmt::format("error: trireme report hang takes one folder; leave out {}\n{}", parsed.list[1], usage()));
  words.folder = parsed.list[0];
  return words;
}

// The verdict that was written while the ranks lived. It is used when all have ended: a rank that had stopped continues
// while its job ends, and then its recorder changes. Empty if a rank lives or there is no verdict.
std::string said_in_time(const fs::path& folder, std::span<const launch::RankView> ranks) {
  const auto ended = [](const launch::RankView& rank) {
    return rank.process && (rank.process->state == 0 || rank.process->state == 'Z');
  };
  const fs::path file = folder / launch::kVerdictName;
  return std::ranges::all_of(ranks, ended) && fs::exists(file) ? base::read_file(file) : "";
}

int report_hang(Arguments arguments) {
  const std::optional<HangWords> read = read_hang_words(arguments);
  if (!read) {
    fmt::print("{}", usage());
    return 0;
  }
  const HangWords& words = *read;
  const fs::path inside = base::flight_folder(words.folder);
  const fs::path folder = fs::exists(inside) ? inside : words.folder;
  std::vector<launch::RankView> ranks = launch::view_ranks(folder);
  if (ranks.empty())
    throw UsageError(fmt::format(
        "error: {} holds no flight recorder's files (flight/rank0.flight); name the out_dir of a job of several ranks",
        words.folder.string()));
  for (launch::RankView& rank : ranks) launch::add_stack(rank);
  const std::int64_t now = launch::time_of_view(ranks);
  constexpr std::int64_t kShortUs = 1'000'000;  // healthy ranks wait for each other too, but briefly
  auto verdict = launch::find_hang(ranks, now);
  const bool gave_up = std::ranges::any_of(ranks, [](const auto& rank) { return rank.log.header.gave_up_us != 0; });
  if (verdict && verdict->waited_us < kShortUs && !gave_up) verdict.reset();
  const std::string said = said_in_time(folder, ranks);
  if (!said.empty())
    fmt::print("{}", said);
  else if (verdict)
    fmt::print("hang: {}\n{}", verdict->sentence, verdict->details);
  else
    fmt::print("no rank waits long for another\n");
  fmt::print("{}", launch::describe_ranks(ranks, now));
  if (words.calls > 0)
    for (const launch::RankView& rank : ranks)
      fmt::print("rank {}, its last calls:\n{}", rank.log.header.global_rank,
                 launch::describe_calls(rank.log, static_cast<std::size_t>(words.calls)));
  return verdict || !said.empty() ? 1 : 0;
}

}  // namespace

int run_report(Arguments arguments) {
  if (const auto code = answer_help(arguments, usage())) return *code;
  if (arguments[0] != "hang")
    throw UsageError(fmt::format("error: there is no trireme report {}\n{}", arguments[0], usage()));
  return report_hang(arguments.subspan(1));
}

}  // namespace trireme::cli
