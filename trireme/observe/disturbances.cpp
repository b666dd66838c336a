#include "trireme/observe/disturbances.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "trireme/base/text.h"
#include "trireme/observe/host_usage.h"

namespace trireme::observe {
namespace {

constexpr double kWorthALine = 0.15;  // of the time
constexpr double kLowerClocks = 0.85;
constexpr int kWindowsInARow = 2;
constexpr double kMostSwapGrowth = 64.0 * (1 << 20);  // bytes a window

/// What a rule sees of one rank.
struct Sight {
  const HostWindow& now;
  const Disturbances::PastOfRank& past;
  double others;  ///< seconds that other programs worked on its CPUs
  double swap_growth;  ///< bytes

  int percent(double seconds) const { return static_cast<int>(100 * seconds / now.seconds + 0.5); }
  bool is_much(double seconds) const { return seconds >= kWorthALine * now.seconds; }
};

/// What to say of a rank; "": nothing; absent: this window does not tell.
using Verdict = std::optional<std::string>;

Verdict neighbour(const Sight& s) {
  const double lost = std::min(s.now.waited, s.others);
  if (!s.is_much(lost)) return "";
  return fmt::format(
      "another program takes its cores for {} % of the time; end it, or leave the rank cores of its own: "
      "--launch.threads_per_rank",
      s.percent(lost));
}

Verdict steal(const Sight& s) {
  if (!s.is_much(s.now.stolen)) return "";
  return fmt::format(
      "the host of this virtual machine gives its cores to others for {} % of the time; take a machine with dedicated "
      "cores",
      s.percent(s.now.stolen));
}

Verdict quota(const Sight& s) {
  if (!s.is_much(s.now.throttled)) return "";
  return fmt::format(
      "its control group's CPU quota stops it for {} % of the time; raise cpu.max, or start fewer threads",
      s.percent(std::min(s.now.throttled, s.now.seconds)));
}

Verdict swapping(const Sight& s) {
  if (s.now.swapped_bytes <= 0) return "";
  const double read = std::min(s.now.seconds, std::max(s.now.disk, kSecondsAPage * s.now.major_faults));
  if (!s.is_much(read) && s.swap_growth < kMostSwapGrowth) return "";
  return fmt::format(
      "{} of it are in swap space, and {}; use less memory: trireme explain memory",
      base::human_bytes(static_cast<int64_t>(s.now.swapped_bytes)),
      s.is_much(read) ? fmt::format("reading them takes {} % of the time", s.percent(read)) : "they become more");
}

Verdict clocks(const Sight& s) {
  const double usual = s.past.megahertz.usual();
  if (s.now.megahertz <= 0 || usual <= 0) return std::nullopt;
  if (s.now.megahertz >= kLowerClocks * usual || s.now.step <= 1.05 * s.past.step.usual()) return "";
  return fmt::format(
      "its clock fell from {:.0f} to {:.0f} MHz, and steps take {:.0f} % longer; look at cooling and power limits",
      usual, s.now.megahertz, 100 * (s.now.step / s.past.step.usual() - 1));
}

// A program on its cores makes the preparation of data slower, too.
Verdict slow_data(const Sight& s) {
  const double usual = s.past.data_share.usual();
  if (usual <= 0 || s.is_much(std::min(s.now.waited, s.others))) return std::nullopt;
  if (!s.is_much(s.now.data) || s.now.data < 3 * usual * s.now.seconds) return "";
  return fmt::format(
      "it waits for data {} % of the time, before {:.1f} %; look at the disk or the network that the data lie on",
      s.percent(s.now.data), 100 * usual);
}

Verdict slow_saves(const Sight& s) {
  constexpr double kSecondsMore = 0.5;
  const double usual = s.past.save.usual();
  if (s.now.save <= 0 || usual <= 0) return std::nullopt;
  if (s.now.save < 2 * usual || s.now.save < usual + kSecondsMore) return "";
  return fmt::format("a save takes it {:.1f} s, before {:.1f} s; the disk of out_dir has become slower: trireme doctor",
                     s.now.save, usual);
}

struct Rule {
  const char* cause;
  Verdict (*judge)(const Sight&);
};
constexpr Rule kRules[] = {{"neighbour", neighbour},       {"steal", steal},   {"quota", quota},
                           {"swapping", swapping},         {"clocks", clocks}, {"disk of data", slow_data},
                           {"disk of out_dir", slow_saves}};

/// What the CPUs of `rank` worked for programs that are no ranks; 0 if a rank of its machine has no figures.
double others_on(std::span<const HostWindow> ranks, const HostWindow& rank) {
  double others = rank.busy;
  for (const HostWindow& r : ranks) {
    if (r.node != rank.node) continue;
    if (r.seconds <= 0) return 0;
    if (r.cpus == rank.cpus) others -= r.own;
  }
  return std::max(0.0, others);
}

}  // namespace

std::string machine_text(double node, bool several) { return several ? fmt::format(" (machine {:.0f})", node) : ""; }

void Disturbances::Past::add(double number) {
  constexpr size_t kMost = 64;
  if (numbers_.size() == kMost) numbers_.erase(numbers_.begin());
  numbers_.push_back(number);
}

double Disturbances::Past::usual() const {
  constexpr size_t kLeast = 3;
  if (numbers_.size() < kLeast) return 0;
  std::vector<double> sorted = numbers_;
  std::ranges::sort(sorted);
  return sorted[(sorted.size() - 1) / 2];
}

std::vector<std::string> Disturbances::see(std::span<const HostWindow> ranks) {
  const bool several = std::ranges::any_of(ranks, [&](const HostWindow& r) { return r.node != ranks.front().node; });
  std::vector<std::string> lines;
  for (const HostWindow& r : ranks) {
    if (r.seconds <= 0) continue;
    PastOfRank& past = past_[r.rank];
    const Sight sight{r, past, others_on(ranks, r), r.swapped_bytes - past.swapped_bytes};
    for (const Rule& rule : kRules) {
      const Verdict verdict = rule.judge(sight);
      if (!verdict) continue;
      int& in_a_row = in_a_row_[{rule.cause, r.rank}];
      in_a_row = verdict->empty() ? 0 : in_a_row + 1;
      if (in_a_row >= kWindowsInARow && named_.insert({rule.cause, r.node}).second)
        lines.push_back(fmt::format("slow     rank {:.0f}{}: {}", r.rank, machine_text(r.node, several), *verdict));
    }
    past.step.add(r.step);
    past.data_share.add(std::max(1e-4, r.data / r.seconds));
    past.megahertz.add(r.megahertz);
    past.swapped_bytes = r.swapped_bytes;
    if (r.save > 0) past.save.add(r.save);
  }
  return lines;
}

}  // namespace trireme::observe
