#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/text.h"
#include "trireme/bench/report.h"
#include "trireme/doctor/judge.h"

namespace trireme::doctor {
namespace {

constexpr double kSlower = 3;            // times slower: other work on a machine costs less than that
constexpr double kFarAway = 2e-3;        // seconds one way: further than one building
constexpr double kShareOfSpeed = 0.05;   // of what the interface negotiated: one stream of TCP reaches more
constexpr double kSlowNetwork = 50e6;    // bytes a second: half of what 1 Gb/s carries
constexpr double kClock = 0.5;           // seconds: lines of two logs stand in the wrong order

class PairJudge {
 public:
  PairJudge(std::span<const Facts> facts, std::span<const PairResult> pairs)
      : facts_(facts), pairs_(pairs), hosts_(hosts_of(facts)), host_of_(host_of_rank(hosts_, facts.size())) {}

  std::vector<Finding> run() && {
    problems();
    memory_that_is_not_shared();
    for (const char* backend : {"shm", "gloo"}) rates(backend);
    clocks();
    return std::move(findings_);
  }

 private:
  size_t host(int rank) const { return static_cast<size_t>(host_of_[static_cast<size_t>(rank)]); }
  bool crosses(const PairResult& p) const { return host(p.first) != host(p.second); }
  std::string name(int rank) const {
    return hosts_.size() == 1 ? fmt::format("rank {}", rank)
                              : fmt::format("rank {} ({})", rank, hosts_[host(rank)].name);
  }
  std::string name(const PairResult& p) const { return fmt::format("{} <-> {}", name(p.first), name(p.second)); }

  void problems() {
    for (const PairResult& p : pairs_)
      if (!p.problem.empty())
        findings_.push_back({Grade::fail, "pairs", fmt::format("{}: {}", name(p), p.problem),
                             crosses(p) ? "see that no firewall is between the hosts; ranks use every port" : ""});
  }

  void memory_that_is_not_shared() {
    for (const PairResult& p : pairs_) {
      const Facts &a = facts_[static_cast<size_t>(p.first)], &b = facts_[static_cast<size_t>(p.second)];
      if (p.backend != "gloo" || a.machine != b.machine || a.host_id != b.host_id) continue;
      findings_.push_back(
          {Grade::warn, "pairs",
           fmt::format("{} run on one machine but cannot open each other's memory, so they talk over Gloo", name(p)),
           "start containers of one machine with one PID namespace, as one user"});
      return;  // once is enough
    }
  }

  // Compares a pair with the other pairs of its backend, and over a network also with its interface's negotiated speed.
  void rates(const std::string& backend) {
    std::vector<const PairResult*> all;
    for (const PairResult& p : pairs_)
      if (p.backend == backend && p.problem.empty()) all.push_back(&p);
    if (all.empty()) return;
    // Among three hosts one bad cable slows down two pairs, so the better pairs are the reference.
    const auto rate_of = [](const PairResult& p) { return p.rate(); };
    const double good = quantile(all, 0.75, rate_of);
    std::vector<const PairResult*> others;
    for (const PairResult* p : all)
      if (p->rate() >= good / kSlower) others.push_back(p);
    const double rate = quantile(others, 0.5, rate_of);
    const double latency = quantile(all, 0.25, [](const PairResult& p) { return p.latency_seconds; });
    const size_t before = findings_.size();
    for (const PairResult* p : all) {
      const bool beside_others = all.size() > 2 && p->rate() < good / kSlower;
      if (beside_others)
        slow(*p, fmt::format("others {}", rate_text(rate)));
      else if (crosses(*p))
        against_network(*p);
      if (crosses(*p) && p->latency_seconds > kFarAway)
        findings_.push_back(
            {Grade::warn, "pairs",
             fmt::format("{}: {} one way{}", name(*p), bench::time_text(p->latency_seconds),
                         all.size() > 2 && latency < kFarAway ? ", others " + bench::time_text(latency) : ""),
             "these hosts are far apart, or something between them queues; keep what talks often inside one site"});
    }
    if (findings_.size() > before) return name_the_host(all, good);
    findings_.push_back(
        {Grade::ok, "pairs",
         fmt::format("{}: {} of ranks, {} and {} one way", backend, base::plural(std::ssize(all), "pair"),
                     rate_text(rate), bench::time_text(latency))});
  }

  void slow(const PairResult& p, const std::string& beside) {
    findings_.push_back({crosses(p) ? Grade::fail : Grade::warn, "pairs",
                         fmt::format("{}: {}, {}", name(p), rate_text(p.rate()), beside),
                         crosses(p) ? look_at(p) : "other work on these cores, or memory of another NUMA node"});
  }

  void against_network(const PairResult& p) {
    const int64_t megabits = std::min(speed(p.first), speed(p.second));
    const double possible = static_cast<double>(megabits) / 8 * 1e6;
    if (megabits > 0 && p.rate() < kShareOfSpeed * possible)
      return slow(p, fmt::format("its interfaces negotiated {}", rate_text(possible)));
    if (p.rate() < kSlowNetwork) slow(p, fmt::format("1 Gb/s Ethernet carries {}", rate_text(117e6)));
  }

  int64_t speed(int rank) const {
    const Facts& f = facts_[static_cast<size_t>(rank)];
    for (const Interface& i : f.interfaces)
      if (i.name == f.route) return i.megabits;
    return 0;
  }

  std::string look_at(const PairResult& p) const {
    std::string text = "look at ";
    for (const int rank : {p.first, p.second}) {
      const std::string& route = facts_[static_cast<size_t>(rank)].route;
      text += fmt::format("{}{} of {}", rank == p.first ? "" : " and ", route.empty() ? "the network" : route,
                          hosts_[host(rank)].name);
      if (speed(rank) > 0) text += fmt::format(" ({} Mb/s)", base::human_count(speed(rank)));
    }
    return text + ": cable, switch port, ethtool, another job's traffic";
  }

  // If all pairs of one host are slow and no others, that host is at fault.
  void name_the_host(const std::vector<const PairResult*>& all, double good) {
    if (hosts_.size() < 3) return;
    const auto is_slow = [&](const PairResult* p) { return crosses(*p) && p->rate() < good / kSlower; };
    for (size_t h = 0; h < hosts_.size(); ++h) {
      const auto of_host = [&](const PairResult* p) { return host(p->first) == h || host(p->second) == h; };
      int slow_here = 0;
      bool only_here = true;
      for (const PairResult* p : all) {
        if (!crosses(*p)) continue;
        slow_here += of_host(p) && is_slow(p);
        only_here &= of_host(p) == is_slow(p);
      }
      if (only_here && slow_here > 1)
        findings_.push_back({Grade::fail, "pairs",
                             fmt::format("every pair of host {} is slow, and no other", hosts_[h].name),
                             "look at this host's own interface and switch port first"});
    }
  }

  // Compared with rank 0's clock, for those hosts whose first rank has been measured with it.
  void clocks() {
    double most = 0;
    bool measured = false;
    for (const PairResult& p : pairs_) {
      if (host(p.first) != 0 || !crosses(p) || !p.problem.empty() || hosts_[host(p.second)].ranks.front() != p.second)
        continue;
      measured = true;
      most = std::max(most, std::abs(p.clock_seconds));
      if (std::abs(p.clock_seconds) - p.clock_error_seconds < kClock) continue;
      findings_.push_back(
          {Grade::warn, "clock",
           fmt::format("host {}'s clock is {:.1f} s {}: logs will not line up", hosts_[host(p.second)].name,
                       std::abs(p.clock_seconds), p.clock_seconds > 0 ? "ahead" : "behind"),
           "chrony or another time service"});
    }
    if (measured && most < kClock)
      findings_.push_back(
          {Grade::ok, "clock", fmt::format("clocks agree within {}", bench::time_text(std::max(most, 1e-6)))});
  }

  template <typename Value>
  static double quantile(const std::vector<const PairResult*>& pairs, double q, Value value) {
    std::vector<double> values;
    for (const PairResult* p : pairs) values.push_back(value(*p));
    return bench::quantile(values, q);
  }

  static std::string rate_text(double rate) {
    return rate >= 999.5e6 ? fmt::format("{} GB/s", bench::rate_text(rate * 1e-9))
                           : fmt::format("{} MB/s", bench::rate_text(rate * 1e-6));
  }

  std::span<const Facts> facts_;
  std::span<const PairResult> pairs_;
  std::vector<Host> hosts_;
  std::vector<int> host_of_;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> judge_pairs(std::span<const Facts> facts, std::span<const PairResult> pairs) {
  return PairJudge(facts, pairs).run();
}

}  // namespace trireme::doctor
