#include "trireme/doctor/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "trireme/base/text.h"
#include "trireme/bench/report.h"

namespace trireme::doctor {
namespace {

constexpr double kSlowLookup = 1;           // seconds: without a resolver a lookup times out after five
constexpr int64_t kLittleMemory = 1 << 30;  // LibTorch alone takes 0.2 GiB a rank
constexpr double kSlowDisk = 50e6;  // bytes a second: a checkpoint of a billion parameters (12 GB) takes 4 minutes
constexpr int64_t kLittleDisk = int64_t{1} << 30;
constexpr int64_t kFilesOfARank = 256, kFilesOfAPeer = 16;  // libraries, data, logs; Gloo's sockets of every group
constexpr int64_t kLittleShm = 64 << 20;  // Docker's default, which MPI and NCCL outgrow

class MachineJudge {
 public:
  MachineJudge(std::span<const Facts> facts, const std::vector<Host>& hosts) : facts_(facts), hosts_(hosts) {}

  std::vector<Finding> run() && {
    for (const Host& host : hosts_) {
      cores(host);
      memory(host);
      limits(host);
      names(host);
      interfaces(host);
      gpus(host);
      disk(host);
    }
    merge_alike();
    constexpr const char* kInstall = "install one version everywhere";
    equal("trireme", Grade::fail, "versions of Trireme", &Facts::trireme, kInstall);
    equal("libtorch", Grade::fail, "versions of LibTorch", &Facts::libtorch, kInstall);
    equal("processor", Grade::warn, "processors", &Facts::processor,
          "the slowest sets the pace, and other kernels may round differently");
    equal("gpu", Grade::warn, "GPUs", gpu_kinds, "the slowest sets the pace; ranks on equal cards wait less");
    equal("driver", Grade::warn, "GPU drivers", &Facts::driver, kInstall);
    software();
    return std::move(findings_);
  }

 private:
  const Facts& of(const Host& host) const { return facts_[static_cast<size_t>(host.ranks.front())]; }
  static int64_t ranks(const Host& host) { return std::ssize(host.ranks); }

  void say(const Host& host, Grade grade, const char* topic, std::string text, std::string fix = {}) {
    findings_.push_back({grade, topic, std::move(text), std::move(fix)});
    about_.push_back(&host);
  }

  void cores(const Host& host) {
    const Facts& f = of(host);
    std::set<int> cpus;  // taskset and cpusets leave all ranks together fewer than there are
    for (const int rank : host.ranks) {
      const std::vector<int>& own = facts_[static_cast<size_t>(rank)].cpus;
      cpus.insert(own.begin(), own.end());
    }
    const auto cores = cpus.empty() ? static_cast<double>(f.cores) : static_cast<double>(cpus.size());
    const double usable = f.cpu_quota > 0 ? std::min(f.cpu_quota, cores) : cores;
    std::string text = fmt::format("{} x {} of {}, {}", base::plural(ranks(host), "rank"),
                                   base::plural(f.usable_cores, "core"), f.cores, f.processor);
    if (f.numa_nodes > 1) text += fmt::format(", {} NUMA nodes", f.numa_nodes);
    if (f.cpu_quota > 0 && f.cpu_quota < static_cast<double>(f.cores))
      text += fmt::format(", {:.3g} of them by quota", f.cpu_quota);
    if (cores < static_cast<double>(f.cores)) text += fmt::format(", of which ranks may use {}", cpus.size());
    if (static_cast<double>(ranks(host)) > usable)
      return say(host, Grade::warn, "cores", text + ": ranks take turns",
                 fmt::format("--devices {}, or more cores", std::max<int64_t>(1, static_cast<int64_t>(usable))));
    say(host, Grade::ok, "cores", text);
  }

  void memory(const Host& host) {
    const Facts& f = of(host);
    const int64_t each = f.available_bytes / ranks(host);
    std::string text = fmt::format("{} memory", base::human_bytes(f.memory_bytes));
    if (f.memory_limit_bytes > 0) text += fmt::format(", {} allowed here", base::human_bytes(f.memory_limit_bytes));
    if (each < kLittleMemory)
      return say(host, Grade::warn, "memory", fmt::format("{}, only {} free a rank", text, base::human_bytes(each)),
                 "trireme explain memory says what a run needs; end what else runs here");
    say(host, Grade::ok, "memory", text + ", " + shared_memory(f));
  }

  // Only other libraries use /dev/shm: Trireme's ranks share memory without a name.
  static std::string shared_memory(const Facts& f) {
    return fmt::format("/dev/shm not needed ({})",
                       f.shm_bytes == 0 ? "there is none" : base::human_bytes(f.shm_free_bytes) + " free");
  }

  void limits(const Host& host) {
    const Facts& f = of(host);
    const int64_t needed = kFilesOfARank + kFilesOfAPeer * std::ssize(facts_);
    const std::string text = fmt::format("{} open files a process", base::human_count(f.open_files));
    if (f.open_files < needed)
      say(host, f.open_files < kFilesOfARank ? Grade::fail : Grade::warn, "files",
          fmt::format("{}, {} want about {}", text, base::plural(std::ssize(facts_), "rank"),
                      base::human_count(needed)),
          f.open_files_at_most >= needed ? fmt::format("ulimit -n {}", needed)
                                         : "raise nofile in limits.conf or systemd");
    else
      say(host, Grade::ok, "files", text);
    const bool others_need_shm = !f.gpus.empty();
    if (others_need_shm && f.shm_bytes <= kLittleShm * ranks(host))
      say(host, Grade::warn, "shm",
          fmt::format("/dev/shm holds {}, which NCCL outgrows", base::human_bytes(f.shm_bytes)),
          "docker run --shm-size 1g, or an emptyDir of medium Memory at /dev/shm");
  }

  void names(const Host& host) {
    const Facts& f = of(host);
    const bool several = hosts_.size() > 1;
    if (f.resolve_seconds > kSlowLookup)
      say(host, Grade::warn, "names", fmt::format("looking up {} took {:.1f} s", f.host, f.resolve_seconds),
          "a name server in /etc/resolv.conf does not answer");
    if (f.own_address.empty())
      say(host, several ? Grade::warn : Grade::ok, "names",
          fmt::format("the host's own name does not resolve{}", several ? "" : ", which one host alone does not need"),
          several ? "name every host in DNS or /etc/hosts, or use addresses in launch.master_addr" : "");
    else if (several && (f.own_address.starts_with("127.") || f.own_address == "::1"))
      say(host, Grade::warn, "names",
          fmt::format("{} resolves to {} here, which other hosts cannot reach", f.host, f.own_address),
          "give launch.master_addr as an address; MPI may want /etc/hosts to name the network's own");
    else
      say(host, Grade::ok, "names",
          several ? "the host's own name resolves" : fmt::format("{} is {}", f.host, f.own_address));
  }

  void interfaces(const Host& host) {
    const Facts& f = of(host);
    std::vector<std::string> texts;
    for (const Interface& i : f.interfaces) {
      const std::string speed = i.megabits > 0 ? fmt::format(" {}", speed_text(i.megabits)) : "";
      texts.push_back(hosts_.size() == 1
                          ? fmt::format("{} {}{}", i.name, i.address, speed)
                          : fmt::format("{}{}{}", i.name, speed, i.name == f.route ? " (ranks talk here)" : ""));
    }
    if (!texts.empty()) return say(host, Grade::ok, "interfaces", base::join(texts, ", "));
    if (hosts_.size() > 1)
      say(host, Grade::fail, "interfaces", "no interface but the loopback is up",
          "ip link set DEVICE up, or ask who runs the network");
    else
      say(host, Grade::ok, "interfaces", "none but the loopback, which ranks of one host need");
  }

  void gpus(const Host& host) {
    const Facts& f = of(host);
    if (f.gpus.empty()) return say(host, Grade::ok, "gpu", "no GPU: ranks compute on the processor");
    std::map<std::string, int64_t> kinds;
    for (const Gpu& gpu : f.gpus) ++kinds[gpu_text(gpu)];
    std::vector<std::string> texts;
    for (const auto& [kind, count] : kinds) texts.push_back(fmt::format("{} x {}", count, kind));
    const std::string text =
        fmt::format("{}, driver {}", base::join(texts, "; "), f.driver.empty() ? "unknown" : f.driver);
    if (kinds.size() > 1)
      say(host, Grade::warn, "gpu", text + ": cards or their links differ",
          "the slowest sets the pace; see nvidia-smi topo -m, and reseat a card whose link is narrow");
    else
      say(host, Grade::ok, "gpu", text);
  }

  // An idle card lowers the generation of its link, so only the width is compared.
  static std::string gpu_text(const Gpu& gpu) {
    std::string text = gpu.name.empty() ? "unknown card" : gpu.name;
    if (gpu.memory_bytes > 0) text += fmt::format(" {}", base::human_bytes(gpu.memory_bytes));
    if (gpu.nvlinks > 0) text += fmt::format(", {}", base::plural(gpu.nvlinks, "NVLink"));
    const auto width = [](const std::string& pcie) { return pcie.substr(std::min(pcie.find('x'), pcie.size())); };
    if (!gpu.pcie_at_most.empty()) text += ", PCIe " + gpu.pcie_at_most;
    if (width(gpu.pcie) != width(gpu.pcie_at_most)) text += fmt::format(" running as {}", width(gpu.pcie));
    return text;
  }
  static std::string gpu_kinds(const Facts& f) {
    std::set<std::string> names;
    for (const Gpu& gpu : f.gpus) names.insert(gpu.name);
    return base::join(std::vector<std::string>(names.begin(), names.end()), "; ");
  }

  void disk(const Host& host) {
    const Disk& d = of(host).disk;
    if (d.folder.empty()) return;
    const std::string space = fmt::format("{} free", base::human_bytes(d.free_bytes));
    if (!d.problem.empty())
      return say(host, Grade::fail, "disk", fmt::format("{}: {}, {}", d.folder, d.problem, space),
                 "choose another --out_dir");
    if (hosts_.size() > 1 && !is_slowest_disk(host)) return;  // one finding for all hosts
    const std::string text =
        fmt::format("disk {}: {} MB/s write with fsync, {} MB/s read, {}{}", d.folder, rate(d.write_rate),
                    rate(d.read_rate), space, hosts_.size() > 1 ? "; other hosts are faster" : "");
    if (d.write_rate < kSlowDisk)
      say(host, Grade::warn, "disk", text,
          "every checkpoint waits for it: save.mode async, or an out_dir on a faster disk");
    else if (d.free_bytes < kLittleDisk)
      say(host, Grade::warn, "disk", text, "save.keep_last, or an out_dir with more room");
    else
      say(host, Grade::ok, "disk", text);
  }

  bool is_slowest_disk(const Host& host) const {
    return std::none_of(hosts_.begin(), hosts_.end(), [&](const Host& other) {
      return of(other).disk.problem.empty() && of(other).disk.write_rate < of(host).disk.write_rate;
    });
  }

  static std::string rate(double bytes_per_second) {
    return base::human_count(static_cast<int64_t>(bytes_per_second * 1e-6 + 0.5));
  }
  static std::string speed_text(int64_t megabits) {
    return megabits >= 1000 ? fmt::format("{:.3g} Gb/s", static_cast<double>(megabits) / 1000)
                            : fmt::format("{} Mb/s", megabits);
  }

  // Equal findings of several hosts become one finding. If there is only one host, it is not named.
  void merge_alike() {
    std::vector<Finding> merged;
    std::vector<std::vector<std::string>> of_hosts;
    for (size_t i = 0; i < findings_.size(); ++i) {
      const auto alike = std::find_if(merged.begin(), merged.end(), [&](const Finding& m) {
        return std::tie(m.grade, m.topic, m.text, m.fix) ==
               std::tie(findings_[i].grade, findings_[i].topic, findings_[i].text, findings_[i].fix);
      });
      const auto at = static_cast<size_t>(alike - merged.begin());
      if (alike == merged.end()) {
        merged.push_back(findings_[i]);
        of_hosts.emplace_back();
      }
      of_hosts[at].push_back(about_[i]->name);
    }
    for (size_t i = 0; i < merged.size() && hosts_.size() > 1; ++i) {
      constexpr size_t kNamed = 4;
      std::vector<std::string>& names = of_hosts[i];
      const std::string all = names.size() == hosts_.size()
                                  ? (names.size() == 2 ? "both hosts" : fmt::format("all {} hosts", hosts_.size()))
                              : names.size() > kNamed ? fmt::format("{} and {} more hosts", names[0], names.size() - 1)
                                                      : base::join(names, ", ");
      merged[i].text = all + ": " + merged[i].text;
    }
    findings_ = std::move(merged);
  }

  // If hosts have different values: which hosts have which.
  template <typename Value>
  void equal(const char* topic, Grade grade, const char* what, Value value, const char* fix) {
    std::map<std::string, std::vector<std::string>> hosts;
    for (const Host& host : hosts_) hosts[std::invoke(value, of(host))].push_back(host.name);
    if (hosts.size() < 2) return;
    std::vector<std::string> texts;
    for (const auto& [v, names] : hosts)
      texts.push_back(
          fmt::format("{} on {}", v.empty() ? "none" : v,
                      names.size() > 4 ? base::plural(std::ssize(names), "host") : base::join(names, ", ")));
    findings_.push_back({grade, topic, fmt::format("{} differ: {}", what, base::join(texts, "; ")), fix});
  }

  void software() {
    const Facts& f = facts_.front();
    std::string text = fmt::format("LibTorch {}", f.libtorch);
    if (!f.nccl.empty()) text += fmt::format(", NCCL {}", f.nccl);
    text += fmt::format(", backends shm, gloo{}{}", f.backends.empty() ? "" : ", ", base::join(f.backends, ", "));
    findings_.push_back({Grade::ok, "software", text});
  }

  std::span<const Facts> facts_;
  const std::vector<Host>& hosts_;
  std::vector<Finding> findings_;
  std::vector<const Host*> about_;  // each finding's
};

}  // namespace

std::string_view word_of(Grade grade) { return grade == Grade::ok ? "ok" : grade == Grade::warn ? "warn" : "FAIL"; }

std::vector<Host> hosts_of(std::span<const Facts> facts) {
  std::vector<Host> hosts;
  std::map<std::tuple<std::string, std::string, std::string>, size_t> known;
  std::map<std::string, int> named;
  for (const Facts& f : facts) {
    const auto [at, is_new] = known.try_emplace({f.machine, f.host, f.host_id}, hosts.size());
    if (is_new) {
      const int again = ++named[f.host];
      hosts.push_back({again == 1 ? f.host : fmt::format("{} ({})", f.host, again), {}});
    }
    hosts[at->second].ranks.push_back(f.rank);
  }
  return hosts;
}

std::vector<int> host_of_rank(std::span<const Host> hosts, size_t num_ranks) {
  std::vector<int> of(num_ranks);
  for (size_t h = 0; h < hosts.size(); ++h)
    for (const int rank : hosts[h].ranks) of[static_cast<size_t>(rank)] = static_cast<int>(h);
  return of;
}

std::vector<Finding> judge_hosts(std::span<const Facts> facts) {
  const std::vector<Host> hosts = hosts_of(facts);
  return MachineJudge(facts, hosts).run();
}

std::vector<Finding> judge_collectives(double copy_rate, std::span<const CollectiveResult> collectives) {
  // Share of the limit. Idle machines reach 0.3 to 0.9; below this, ranks have waited for cores.
  constexpr double kLittle = 0.1;
  std::vector<Finding> findings;
  if (copy_rate > 0)
    findings.push_back({Grade::ok, "copy",
                        fmt::format("a copy moves {} GB/s a rank{}", bench::rate_text(copy_rate * 1e-9),
                                    collectives.empty() ? "" : " while all ranks copy")});
  if (collectives.empty()) return findings;
  std::vector<std::string> texts;
  double worst = 1;
  for (const CollectiveResult& c : collectives) {
    const double share = c.limit > 0 ? c.rate / c.limit : 1;
    worst = std::min(worst, share);
    texts.push_back(fmt::format("{} {} GB/s ({:.0f} %)", c.name, bench::rate_text(c.rate * 1e-9), 100 * share));
  }
  const CollectiveResult& first = collectives.front();
  Finding finding{Grade::ok, "collectives",
                  fmt::format("{} of {}: {}; limit {} GB/s, {}", first.backend, base::human_bytes(first.bytes),
                              base::join(texts, ", "), bench::rate_text(first.limit * 1e-9), first.limit_name)};
  if (worst < kLittle) {
    finding.grade = Grade::warn;
    finding.fix = "other work on these cores, or more ranks than cores; trireme bench collectives shows every size";
  }
  findings.push_back(finding);
  return findings;
}

}  // namespace trireme::doctor
