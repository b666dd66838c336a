#include "trireme/observe/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/observe/host_usage.h"

namespace trireme::observe {
namespace {

using base::Activity;
using Windows = std::span<const RankWindow>;

constexpr int64_t kFewTokens = 256;  // of a micro-batch: weights are read for too few rows
constexpr double kGoodProducts = 0.6;  // share of the peak that products of a good size reach

template <class Value>
double mean(Windows ranks, const Value& value) {
  double sum = 0;
  for (const RankWindow& r : ranks) sum += value(r);
  return sum / double(ranks.size());
}

template <class Value>
const RankWindow& most(Windows ranks, const Value& value) {
  return *std::ranges::max_element(ranks, {}, value);
}

double lower_median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

std::string after_every(int64_t steps) {
  return steps == 1 ? "after every step" : fmt::format("after every {} steps", steps);
}

double compute_of(const RankWindow& r) { return r.compute(); }

/// Mean compute time of each stage.
std::map<double, double> stage_means(Windows ranks) {
  std::map<double, std::pair<double, double>> sums;
  for (const RankWindow& r : ranks) sums[r.stage].first += r.compute(), sums[r.stage].second += 1;
  std::map<double, double> means;
  for (const auto& [stage, sum] : sums) means[stage] = sum.first / sum.second;
  return means;
}

class Diagnosis {
 public:
  Diagnosis(const RunFacts& run, Windows ranks) : run_(run), ranks_(ranks), steps_(double(run.steps)) {}

  std::vector<Finding> all() {
    data();
    saves();
    evaluation();
    if (!run_.on_gpu) of_processors();
    std::ranges::sort(findings_, std::greater(), &Finding::seconds);
    return std::move(findings_);
  }

 private:
  void add(const char* cause, double seconds, std::string what, std::string advice) {
    findings_.push_back({cause, seconds / steps_, std::move(what), std::move(advice)});
  }

  // Rules about a thread's own times. On a GPU the host runs ahead, and its clock does not see what the card does.
  void of_processors() {
    slow_rank_or_stage();
    cores();
    memory();
    recompute();
    link();
    offload();
    few_tokens();
  }

  void offload() {
    add("offload", mean(ranks_, [](const RankWindow& r) { return r.of(Activity::offload); }),
        "ranks wait for values that rest in host memory or on a disk",
        "keep more in memory (--offload.ratio 0.5), start copies earlier (--offload.prefetch 2), or do more for each "
        "copy with a larger --train.global_batch_size");
  }

  void data() {
    const RankWindow& r = most(ranks_, [](const RankWindow& w) { return w.of(Activity::data); });
    const double waited = r.of(Activity::data);
    if (r.disk > 0.5 * waited)
      return add("disk", waited,
                 fmt::format("rank {:.0f} waits for data, and its cores for a disk in most of that time", r.rank),
                 "copy the data to a local disk, or to memory; trireme doctor measures the disk of out_dir");
    add("data", waited, fmt::format("rank {:.0f} waits for data", r.rank),
        fmt::format("set --data.num_workers {}, or cut the text once beforehand: trireme data tokenize",
                    std::max<int64_t>(1, 2 * run_.data_workers)));
  }

  void saves() {
    const double seconds = mean(ranks_, [](const RankWindow& r) { return r.saves; });
    const std::string later =
        fmt::format("--train.save_interval {}", std::max<int64_t>(10, 10 * std::max<int64_t>(1, run_.save_interval)));
    add("saves", seconds, fmt::format("saves {} stop training", after_every(run_.save_interval)),
        run_.saves_beside ? "save less often: " + later : "set --save.mode async, or save less often: " + later);
  }

  void evaluation() {
    add("evaluation", mean(ranks_, [](const RankWindow& r) { return r.evaluation; }),
        fmt::format("evaluation {} stops training", after_every(run_.evaluation_interval)),
        fmt::format("evaluate less often (--eval.interval {}) or on less (--eval.max_iters)",
                    10 * std::max<int64_t>(1, run_.evaluation_interval)));
  }

  void slow_rank_or_stage() {
    const SlowRank slow = slow_rank(ranks_);
    if (slow.rank != nullptr && slow.seconds > 0.08 * slow.median) {
      const RankWindow& r = *slow.rank;
      std::string advice = "compare the machines with trireme doctor: clocks, other programs, memory";
      if (r.throttled > 0.3 * slow.seconds)
        advice = "its control group's CPU quota stops it: raise cpu.max, or start fewer threads";
      else if (r.lacking > 0.3 * slow.seconds)
        advice = shares_cores(r) ? "it shares its cores: set --launch.pin true"
                                 : "another program runs on its cores: end it, or give the rank other cores";
      else if (swapping(r) > 0.3 * slow.seconds)
        advice = "it reads memory back from swap space: use less memory, trireme explain memory says what takes it";
      crowded_ = std::max(r.lacking, r.throttled) > 0.3 * slow.seconds ? &r : nullptr;
      add("slow rank", slow.seconds,
          fmt::format("rank {:.0f} computes {:.0f} % longer than the others, and they wait for it", r.rank,
                      100 * slow.seconds / slow.median),
          advice);
    }
    if (run_.pipeline_ranks < 2) return;
    const auto means = stage_means(ranks_);
    double sum = 0;
    auto longest = means.begin();
    for (auto stage = means.begin(); stage != means.end(); ++stage) {
      sum += stage->second;
      if (stage->second > longest->second) longest = stage;
    }
    add("stages", longest->second - sum / double(means.size()),
        fmt::format("stage {:.0f} of the pipeline computes {:.0f} % longer than the mean", longest->first,
                    100 * (longest->second * double(means.size()) / sum - 1)),
        "move units to other stages with --pipeline.split; trireme explain schedule --hardware this shows each stage");
  }

  /// Whether it had no core while another one that it may use had nothing to do.
  bool shares_cores(const RankWindow& r) const { return ranks_.size() > 1 && !run_.pinned && r.idle > 0.5 * r.lacking; }

  // Computing threads that have no core to run on: too many threads, ranks that move onto each other, other programs.
  void cores() {
    add("steal", most(ranks_, [](const RankWindow& w) { return w.stolen; }).stolen,
        "the host of this virtual machine gives its cores to others", "take a machine with dedicated cores");
    const RankWindow& r = most(ranks_, [](const RankWindow& w) { return w.lacking; });
    const double lost = r.lacking;
    const RankWindow& crowded = most(ranks_, [](const RankWindow& w) { return -w.core_share; });
    const bool has_quota = r.throttled > 0 && r.throttled > 0.3 * lost;
    if (crowded.core_share < 0.95 && !(has_quota && (crowded.threads == 1 || &crowded == crowded_)))
      return add("threads", crowding(crowded),
                 fmt::format("each of rank {:.0f}'s {:.0f} threads has a core for {:.0f} % of the time", crowded.rank,
                             crowded.threads, 100 * crowded.core_share),
                 crowded.threads > 1 ? fmt::format("set --launch.threads_per_rank {:.0f}",
                                                   std::max(1.0, std::floor(crowded.threads * crowded.core_share)))
                                     : "start fewer ranks: --devices");
    if (&r == crowded_) return;  // said already
    if (has_quota)
      return add("quota", lost, "the control group's CPU quota stops computation",
                 "raise cpu.max, or start as many threads as it allows");
    if (shares_cores(r))
      return add("pinning", lost,
                 fmt::format("rank {:.0f} shares a core with other ranks while another core is idle", r.rank),
                 "set --launch.pin true");
    add("neighbour", lost, fmt::format("another program takes rank {:.0f}'s cores", r.rank),
        "end it, or leave it cores of its own: --launch.threads_per_rank");
  }

  /// Seconds of products beyond a good share of the peak, of the mean rank.
  double slow_products() const {
    if (run_.peak_flops <= 0) return 0;
    return std::max(0.0, mean(ranks_, [](const RankWindow& r) { return r.of(Activity::products); }) -
                             steps_ * run_.product_flops_per_step / (kGoodProducts * run_.peak_flops));
  }

  /// Threads without a core of their own take turns, so while one waits another computes. Lost is what products fall
  /// short of a good rate, and other operations as much; of a rank whose rate is unknown all the time without a core.
  double crowding(const RankWindow& r) const {
    const double products = mean(ranks_, [](const RankWindow& w) { return w.of(Activity::products); });
    const bool known = run_.peak_flops > 0 && run_.product_flops_per_step > 0 && products > 0;
    return r.compute() * (known ? slow_products() / products : 1 - r.core_share);
  }

  /// Seconds in which the rank waited for pages in swap space.
  static double swapping(const RankWindow& r) {
    return r.swapped_bytes > 0 ? std::min(r.seconds, std::max(r.disk, kSecondsAPage * r.major_faults)) : 0;
  }

  void memory() {
    const RankWindow& r = most(ranks_, swapping);
    if (swapping(r) <= 0) return;
    add("swapping", swapping(r),
        fmt::format("rank {:.0f} has {} in swap space, and reads it back", r.rank,
                    base::human_bytes(static_cast<int64_t>(r.swapped_bytes))),
        "use less memory: trireme explain memory says what takes it");
  }

  void recompute() {
    const int64_t more = run_.bytes_without_recompute;
    if (more < 0 || more > run_.bytes_left) return;
    add("recompute", mean(ranks_, [](const RankWindow& r) { return r.recompute; }),
        fmt::format("activations are computed again, though memory would hold them: {} more a rank, {} are free",
                    base::human_bytes(more), base::human_bytes(run_.bytes_left)),
        "set --recompute none");
  }

  /// What a rank waits for communication beyond waiting for a slower rank and for the pipeline to fill and drain.
  double own_communication(const RankWindow& r) const {
    const double slowest = most(ranks_, compute_of).compute();
    const double fill =
        run_.pipeline_ranks > 1 ? double(run_.pipeline_ranks - 1) / double(run_.micro_batches) * r.compute() : 0;
    return std::max(0.0, r.of(Activity::communication) - (slowest - r.compute()) - fill);
  }

  double typical_communication() const {
    std::vector<double> waits;
    for (const RankWindow& r : ranks_) waits.push_back(own_communication(r));
    return lower_median(waits);
  }

  void link() {
    if (ranks_.size() < 2) return;
    add("communication", typical_communication(), "ranks wait for weights, gradients or messages to arrive",
        std::string(run_.sent_each_micro_batch > 0.5
                        ? "weights or gradients are sent for each micro-batch: raise --train.micro_batch_size, and "
                          "--train.global_batch_size with it"
                        : "communicate less often with a larger --train.global_batch_size") +
            "; trireme doctor measures the links");
    if (run_.pipeline_ranks < 2) return;
    const double fill = double(run_.pipeline_ranks - 1) / double(run_.micro_batches) * mean(ranks_, compute_of);
    add("bubble", std::min(fill, mean(ranks_, [](const RankWindow& r) { return r.of(Activity::communication); })),
        fmt::format("the pipeline of {} stages fills and drains around {}", run_.pipeline_ranks,
                    run_.micro_batches == 1 ? "one micro-batch" : fmt::format("{} micro-batches", run_.micro_batches)),
        fmt::format("more micro-batches a step (--train.global_batch_size), or --pipeline.schedule zb_h1"));
  }

  // What a step does once, however few tokens it has, and products whose weights are read for few rows.
  void few_tokens() {
    if (run_.micro_batch_tokens <= 0 || run_.micro_batch_tokens >= kFewTokens) return;
    double lost = mean(ranks_, [](const RankWindow& r) { return r.of(Activity::optimizer) + r.of(Activity::other); });
    if (ranks_.size() > 1) lost += typical_communication();
    lost += slow_products();
    add("small micro-batch", lost,
        fmt::format("a micro-batch has only {} tokens, for which all weights are read", run_.micro_batch_tokens),
        "raise --train.micro_batch_size, or --train.max_seq_length");
  }

  const RunFacts& run_;
  Windows ranks_;
  double steps_;
  const RankWindow* crowded_ = nullptr;  ///< the slow rank, if it lacks cores
  std::vector<Finding> findings_;
};

double step_seconds(const RunFacts& run, Windows ranks) {
  return mean(ranks, [](const RankWindow& r) { return r.seconds; }) / double(run.steps);
}

struct Phase {
  const char* key;
  std::string name;
  std::function<double(const RankWindow&)> seconds;
};

/// They add up to the window; hidden communication does not count.
std::vector<Phase> phases() {
  std::vector<Phase> all;
  for (const base::ActivityName& a : base::kActivities)
    all.push_back({a.key, a.name, [a](const RankWindow& r) { return r.of(a.activity); }});
  all.push_back({"answers", "writing answers", [](const RankWindow& r) { return r.answers; }});
  all.push_back({"evaluation", "evaluation", [](const RankWindow& r) { return r.evaluation; }});
  all.push_back({"saves", "saves", [](const RankWindow& r) { return r.saves; }});
  all.push_back({"outside", "between steps, other", [](const RankWindow& r) {
                   return std::max(0.0, r.seconds - r.in_steps - r.answers - r.evaluation - r.saves);
                 }});
  return all;
}

std::string rates(const RunFacts& run, double step) {
  std::vector<std::string> known;
  if (run.tokens_per_step > 0)
    known.push_back(base::human_count(std::llround(double(run.tokens_per_step) / step)) + " tokens/s");
  if (run.samples_per_step > 0) known.push_back(fmt::format("{:.4g} samples/s", double(run.samples_per_step) / step));
  if (run.peak_flops > 0)
    known.push_back(fmt::format("{:.1f} % of the peak", 100 * run.flops_per_step / step / run.peak_flops));
  return known.empty() ? "" : "; " + base::join(known, ", ");
}

/// Money a step: ranks x price an hour x hours.
double money(const RunFacts& run, Windows ranks, double step) { return double(ranks.size()) * run.price * step / 3600; }

}  // namespace

SlowRank slow_rank(std::span<const RankWindow> ranks) {
  std::map<double, std::vector<const RankWindow*>> stages;
  for (const RankWindow& r : ranks) stages[r.stage].push_back(&r);
  SlowRank worst;
  for (const auto& [stage, members] : stages) {
    if (members.size() < 2) continue;
    std::vector<double> times;
    for (const RankWindow* r : members) times.push_back(r->compute());
    const double median = lower_median(times);
    const RankWindow* slowest =
        *std::ranges::max_element(members, {}, [](const RankWindow* r) { return r->compute(); });
    if (slowest->compute() - median > worst.seconds) worst = {slowest, slowest->compute() - median, median};
  }
  return worst;
}

std::vector<Finding> diagnose(const RunFacts& run, std::span<const RankWindow> ranks, double least) {
  std::vector<Finding> all = Diagnosis(run, ranks).all();
  const double step = step_seconds(run, ranks);
  std::erase_if(all, [&](const Finding& f) { return f.seconds < least * step; });
  return all;
}

std::string profile_text(const RunFacts& run, std::span<const RankWindow> ranks, const std::string& units,
                         const std::string& operations) {
  const double step = step_seconds(run, ranks), steps = double(run.steps);
  std::string out =
      fmt::format("profile  steps {} to {}: {:.4g} ms a step on {}{}\n", run.first_step, run.first_step + run.steps - 1,
                  1e3 * step, base::plural(std::ssize(ranks), "rank"), rates(run, step));
  const std::vector<Finding> findings = diagnose(run, ranks);
  if (findings.empty()) out += "advice   nothing that a setting would change takes 3 % of a step\n";
  for (const Finding& f : findings)
    out += fmt::format("{}{:.0f} % of a step: {}.\n         {}.\n", &f == &findings.front() ? "advice   " : "         ",
                       100 * f.seconds / step, f.what, f.advice);
  out += fmt::format("{:<9}{:<26}{:>12}{:>8}{:>14}\n", "", "", "ms a step", "share", "slowest rank");
  double sum = 0;
  for (const Phase& p : phases()) {
    const double seconds = mean(ranks, p.seconds) / steps, longest = p.seconds(most(ranks, p.seconds)) / steps;
    sum += seconds;
    if (longest < 5e-7) continue;
    out += fmt::format("{:<9}{:<26}{:>12.3f}{:>6.1f} %{:>14.3f}\n", "", p.name, 1e3 * seconds, 100 * seconds / step,
                       1e3 * longest);
  }
  out += fmt::format("{:<9}{:<26}{:>12.3f}{:>6.1f} %\n", "", "all", 1e3 * sum, 100 * sum / step);
  if (const double hidden = mean(ranks, [](const RankWindow& r) { return r.hidden; }) / steps; hidden > 5e-7)
    out += fmt::format("{:<9}{:<26}{:>12.3f}   behind computation\n", "", "communication, hidden", 1e3 * hidden);
  const auto pass = [&](double RankWindow::* of) {
    return 1e3 * mean(ranks, [&](const RankWindow& r) { return r.*of; }) / steps;
  };
  out += fmt::format("passes   forward {:.4g} ms, backward {:.4g} ms a step\n", pass(&RankWindow::forward),
                     pass(&RankWindow::backward));
  if (!units.empty()) out += units;
  if (!operations.empty()) out += operations;
  const RankWindow& largest = most(ranks, [](const RankWindow& r) { return r.resident_bytes; });
  out += fmt::format("memory   {} a rank planned; {} resident at most, on rank {:.0f}\n",
                     base::human_bytes(run.planned_bytes), base::human_bytes(int64_t(largest.resident_bytes)),
                     largest.rank);
  if (run.price > 0 && run.tokens_per_step > 0 && run.samples_per_step > 0)
    out += fmt::format("money    {:.4g} a million tokens, {:.4g} a thousand samples, at {:g} a rank and hour\n",
                       money(run, ranks, step) / double(run.tokens_per_step) * 1e6,
                       money(run, ranks, step) / double(run.samples_per_step) * 1e3, run.price);
  return out;
}

namespace {

/// By the names of the textbook's TrainingEfficiency; without what is not known.
nlohmann::ordered_json efficiency(const RunFacts& run, Windows ranks) {
  const double step = step_seconds(run, ranks);
  const auto share = [&](const auto& seconds) { return mean(ranks, seconds) / double(run.steps) / step; };
  const auto in = [&](Activity a) { return share([a](const RankWindow& r) { return r.of(a); }); };
  nlohmann::ordered_json named;
  if (!run.on_gpu) {  // there the host sees neither
    const double resident = most(ranks, [](const RankWindow& r) { return r.resident_bytes; }).resident_bytes;
    named["utilization"] = share(compute_of);
    named["memory_utilization"] = resident / (resident + double(run.bytes_left));
    named["time_in_forward"] = share([](const RankWindow& r) { return r.forward; });
    named["time_in_backward"] = share([](const RankWindow& r) { return r.backward; });
  }
  named["time_in_data_loading"] = in(Activity::data);
  named["time_in_communication"] = in(Activity::communication);
  return named;
}

}  // namespace

std::string profile_json(const RunFacts& run, std::span<const RankWindow> ranks) {
  const double step = step_seconds(run, ranks), steps = double(run.steps);
  nlohmann::ordered_json findings = nlohmann::ordered_json::array(), by_phase,
                         by_rank = nlohmann::ordered_json::array();
  for (const Finding& f : diagnose(run, ranks))
    findings.push_back({{"cause", f.cause}, {"share", f.seconds / step}, {"what", f.what}, {"advice", f.advice}});
  for (const Phase& p : phases()) by_phase[p.key] = mean(ranks, p.seconds) / steps;
  for (const RankWindow& r : ranks) {
    nlohmann::ordered_json row = {{"rank", int64_t(r.rank)}, {"stage", int64_t(r.stage)}};
    for (const Phase& p : phases()) row[p.key] = p.seconds(r) / steps;
    row["communication_hidden"] = r.hidden / steps;
    row["without_a_core"] = r.lacking / steps;
    row["resident_bytes"] = int64_t(r.resident_bytes);
    by_rank.push_back(row);
  }
  nlohmann::ordered_json all = {{"first_step", run.first_step},
                                {"steps", run.steps},
                                {"step_seconds", step},
                                {"findings", findings},
                                {"phases", by_phase},
                                {"ranks", by_rank},
                                {"planned_bytes", run.planned_bytes},
                                {"efficiency", efficiency(run, ranks)}};
  if (run.peak_flops > 0) all["peak_fraction"] = run.flops_per_step / step / run.peak_flops;
  const double cost = money(run, ranks, step), tokens = double(run.tokens_per_step),
               samples = double(run.samples_per_step);
  if (tokens > 0) all["tokens_per_second"] = tokens / step;
  if (samples > 0) all["samples_per_second"] = samples / step;
  if (cost > 0 && tokens > 0) all["cost_per_million_tokens"] = cost / tokens * 1e6;
  if (cost > 0 && samples > 0) all["cost_per_sample"] = cost / samples;
  return base::json_text(all, 2) + "\n";
}

}  // namespace trireme::observe
