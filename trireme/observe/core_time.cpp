#include "trireme/observe/core_time.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <string>

#include "trireme/base/cgroup.h"
#include "trireme/base/checksum.h"
#include "trireme/base/process.h"
#include "trireme/base/usable_cpus.h"

namespace trireme::observe {
namespace {

// A claim as ranks send it: host, threads, quota in thousandths (-1: none), and a word for every 64 logical CPUs.
constexpr int kHost = 0, kThreads = 1, kQuota = 2, kCpus = 3, kWords = kCpus + base::kMostCpus / 64;

at::Tensor write_claim(int threads) {
  const at::Tensor words = at::zeros({kWords}, at::kLong);
  auto* to = words.data_ptr<int64_t>();
  const std::string host = base::this_host();
  to[kHost] = static_cast<int64_t>(base::checksum(std::as_bytes(std::span(host))));
  to[kThreads] = threads;
  const std::optional<double> quota = base::Cgroup::of_this_process().cpu_quota();
  to[kQuota] = quota ? static_cast<int64_t>(*quota * 1000) : -1;
  for (const int cpu : base::usable_cpus())
    to[kCpus + cpu / 64] = static_cast<int64_t>(static_cast<uint64_t>(to[kCpus + cpu / 64]) | uint64_t{1} << cpu % 64);
  return words;
}

CoreClaim read_claim(const int64_t* words) {
  CoreClaim claim{.host = words[kHost], .threads = words[kThreads], .cpus = {}, .quota = {}};
  if (words[kQuota] > 0) claim.quota = static_cast<double>(words[kQuota]) / 1000;
  for (int cpu = 0; cpu < base::kMostCpus; ++cpu)
    if (static_cast<uint64_t>(words[kCpus + cpu / 64]) >> cpu % 64 & 1) claim.cpus.push_back(cpu);
  return claim;
}

}  // namespace

double core_time(std::span<const CoreClaim> claims, size_t mine) {
  const CoreClaim& own = claims[mine];
  std::map<int, double> wanted;  // threads on each logical CPU of this host, on average
  double all_threads = 0;
  for (const CoreClaim& claim : claims) {
    if (claim.host != own.host) continue;
    const auto threads = static_cast<double>(claim.threads);
    all_threads += threads;
    for (const int cpu : claim.cpus) wanted[cpu] += threads / static_cast<double>(claim.cpus.size());
  }
  double time = own.cpus.empty() ? 1 : 0;
  for (const int cpu : own.cpus) time += std::min(1.0, 1 / wanted[cpu]) / static_cast<double>(own.cpus.size());
  return own.quota ? std::min(time, *own.quota / all_threads) : time;
}

double core_time(comm::Communicator& world, int threads) {
  const auto size = static_cast<size_t>(world.size());
  const at::Tensor all = at::empty({world.size() * kWords}, at::kLong);
  world.all_gather(all, write_claim(threads), std::vector<int64_t>(size, kWords))->wait();
  std::vector<CoreClaim> claims;
  for (size_t rank = 0; rank < size; ++rank) claims.push_back(read_claim(all.data_ptr<int64_t>() + rank * kWords));
  return core_time(claims, static_cast<size_t>(world.rank()));
}

}  // namespace trireme::observe
