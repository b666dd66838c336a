#include "trireme/doctor/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/named_file.h"
#include "trireme/base/text.h"
#include "trireme/base/version.h"
#include "trireme/bench/collective_cases.h"
#include "trireme/bench/collective_timing.h"
#include "trireme/bench/report.h"
#include "trireme/comm/c10d_store.h"
#include "trireme/doctor/report.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/supervise/worker.h"
#include "trireme/machine/limits.h"
#include "trireme/train/ranks.h"

namespace trireme::doctor {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kBytes = int64_t{4} << 20;  // of a collective
constexpr auto kPairTimeout = 10s;  // longest delay by two ranks that cannot reach each other

class Doctor {
 public:
  Doctor(const Settings& settings, const launch::RankEnvironment& environment)
      : settings_(settings),
        environment_(environment),
        size_(environment.world_size),
        rank_(environment.global_rank),
        progress_("doctor", rank_ == 0) {}

  Examination examine() && {
    progress_.step(0, 4, "looking at the machine");
    meeting_ = train::meet(settings_, environment_);
    world_ = {.name = "doctor", .rank = rank_, .size = size_, .timeout = settings_.comm.timeout};
    gather();
    hosts_ = hosts_of(found_.facts);
    measure_disks();
    measure_pairs();
    measure_collectives();
    if (rank_ == 0) judge();
    return std::move(found_);
  }

 private:
  // Every rank's text, by rank. This needs only the store.
  std::vector<std::string> exchange(const std::string& what, const std::string& mine) {
    if (size_ == 1) return {mine};
    c10d::Store& store = *meeting_.store.store;
    const auto key = [&](int rank) { return fmt::format("{}doctor/{}/{}", meeting_.options.name, what, rank); };
    comm::set_text(store, key(rank_), mine);
    std::vector<std::string> all;
    for (int rank = 0; rank < size_; ++rank) all.push_back(comm::wait_for_text(store, world_, key(rank), rank));
    return all;
  }

  void gather() {
    Facts mine = gather_facts();
    mine.rank = rank_;
    if (!environment_.master_address.empty()) mine.route = launch::interface_towards(environment_.master_address);
    for (const std::string& text : exchange("facts", write_facts(mine))) found_.facts.push_back(read_facts(text));
  }

  // The first ranks of all hosts at once: if they share a file system, so does a run.
  void measure_disks() {
    progress_.step(1, 4, "the disk of out_dir");
    Facts& mine = found_.facts[static_cast<size_t>(rank_)];
    for (const Host& host : hosts_)
      if (host.ranks.front() == rank_) mine.disk = measure_disk(settings_.out_dir);
    const std::vector<std::string> all = exchange("disk", write_facts(mine));
    for (int rank = 0; rank < size_; ++rank)
      found_.facts[static_cast<size_t>(rank)].disk = read_facts(all[static_cast<size_t>(rank)]).disk;
  }

  // One pair at a time, so that no other traffic disturbs it.
  void measure_pairs() {
    if (size_ == 1) return;
    comm::GroupOptions options = meeting_.options;
    options.rank = rank_;
    options.timeout = std::min<std::chrono::milliseconds>(options.timeout, kPairTimeout);
    comm::Group patient = world_;
    patient.timeout = std::max<std::chrono::milliseconds>(settings_.comm.timeout, 4 * kPairTimeout);
    const auto pairs = choose_pairs(host_of_rank(hosts_, found_.facts.size()));
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto [first, second] = pairs[i];
      progress_.step(2, 4, fmt::format("ranks {} and {}, pair {} of {}", first, second, i + 1, pairs.size()));
      launch::report_status(fmt::format("ranks {} and {}", first, second));
      const std::string key = fmt::format("{}doctor/pair/{}", meeting_.options.name, i);
      PairResult result;
      if (rank_ == first || rank_ == second) result = measure_pair(pairs[i], options);
      if (rank_ == first)
        comm::set_text(*meeting_.store.store, key, write_pair(result));
      else
        result = read_pair(comm::wait_for_text(*meeting_.store.store, patient, key, first));
      found_.pairs.push_back(result);
    }
  }

  void measure_collectives() {
    progress_.step(3, 4, "collectives");
    if (size_ == 1) {
      found_.copy_rate = machine::measure_copy(1, kBytes).best();
      return;
    }
    // Without a connection between some pair, collectives would only wait for it again.
    if (std::ranges::any_of(found_.pairs, [](const PairResult& p) { return !p.problem.empty(); })) return;
    comm::GroupOptions options = meeting_.options;
    options.name += "doctor-world";
    options.rank = rank_;
    options.size = size_;
    try {
      const comm::CommunicatorPtr world = comm::make_communicator(options);
      found_.copy_rate = bench::copy_together(*world, kBytes);
      constexpr std::string_view kNames[] = {"all_reduce", "all_gather", "reduce_scatter"};
      for (const bench::CollectiveCase& c : bench::collective_cases())
        if (c.buffers == bench::Buffers::own && std::ranges::count(kNames, c.name) > 0) measure(c, world);
      found_.copy_rate = std::max(found_.copy_rate, bench::copy_together(*world, kBytes));
    } catch (const CommError& error) {
      found_.findings.push_back({Grade::fail, "collectives", error.what(), ""});
    }
  }

  void measure(const bench::CollectiveCase& c, const comm::CommunicatorPtr& world) {
    const bench::CollectiveCall call = c.make(world, kBytes);
    call.run();
    if (!call.is_right())
      throw Error(fmt::format("doctor: {} over {} gave a wrong result on rank {}", c.name, world->backend(), rank_));
    const std::vector<double> times = bench::time_together(*world, call.run, {.seconds = 0.1, .least = 5});
    const double seconds = bench::quantile(times, 0.5);
    const bool shared = world->backend() == "shm";
    found_.collectives.push_back(
        {.name = c.name,
         .backend = world->backend(),
         .bytes = kBytes,
         .seconds = seconds,
         .rate = static_cast<double>(kBytes) / seconds * (shared ? c.moved(size_) : c.bus_factor(size_))});
  }

  void judge() {
    for (CollectiveResult& c : found_.collectives) {
      const bool shared = c.backend == "shm";
      c.limit_name = shared ? "a copy while all ranks copy" : "the slowest pair";
      c.limit = found_.copy_rate;
      if (shared) continue;
      c.limit = found_.pairs.front().rate();
      for (const PairResult& p : found_.pairs) c.limit = std::min(c.limit, p.rate());
    }
    std::vector<Finding> all = judge_hosts(found_.facts);
    for (Finding& f : judge_pairs(found_.facts, found_.pairs)) all.push_back(std::move(f));
    for (Finding& f : judge_collectives(found_.copy_rate, found_.collectives)) all.push_back(std::move(f));
    std::move(found_.findings.begin(), found_.findings.end(), std::back_inserter(all));
    found_.findings = std::move(all);
  }

  const Settings& settings_;
  const launch::RankEnvironment& environment_;
  const int size_, rank_;
  bench::Progress progress_;
  train::RankMeeting meeting_;
  comm::Group world_;
  std::vector<Host> hosts_;
  Examination found_;
};

}  // namespace

int run_doctor(const Settings& settings, const launch::RankEnvironment& environment) {
  const Examination found = Doctor(settings, environment).examine();
  if (environment.global_rank != 0) return 0;
  const auto hosts = hosts_of(found.facts);
  fmt::print("trireme {}  doctor  {} on {} ({})\n\n{}", base::kVersion, base::plural(environment.world_size, "rank"),
             base::plural(std::ssize(hosts), "host"), hosts.size() == 1 ? hosts[0].name : hosts[0].name + ", ...",
             report_text(found));
  std::fflush(stdout);
  if (settings.doctor.json) {
    base::write_named_file(*settings.doctor.json, report_json(found));
    fmt::print("wrote {}\n", *settings.doctor.json);
  }
  const bool failing = std::any_of(found.findings.begin(), found.findings.end(),
                                   [](const Finding& f) { return f.grade == Grade::fail; });
  return failing ? kFoundFailing : 0;
}

}  // namespace trireme::doctor
