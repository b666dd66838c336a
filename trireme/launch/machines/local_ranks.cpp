#include "trireme/launch/machines/local_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/store/client.h"
#include "trireme/store/server.h"

namespace trireme::launch {
namespace {
// Containers of one host have names of their own, and so count as hosts of their own.
std::string this_host() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  const char* id = std::getenv("TRIREME_HOST_ID");
  return fmt::format("{} {} {}", host_name(), boot, id == nullptr ? "" : id);
}

std::string key_of(int rank) { return fmt::format("local/host/{}", rank); }

constexpr std::chrono::milliseconds kLookForRank{500};
constexpr std::chrono::seconds kSilentWait{2};  // before rank 0 tells whom it waits for

/// What each rank has said; `look` is called while one is waited for.
std::vector<std::string> hosts_of_ranks(store::Client& client, const RankEnvironment& e,
                                        std::chrono::milliseconds limit, const std::function<bool()>& look) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> hosts;
  bool told = false;
  while (std::ssize(hosts) < e.world_size) {
    const int rank = static_cast<int>(hosts.size());
    if (auto host = client.get(key_of(rank), std::min(limit, kLookForRank))) {
      hosts.push_back(*std::move(host));
      continue;
    }
    look();
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > limit)
      throw Error(
          fmt::format("rank {} has not come within {}; see that each machine has started its ranks and reaches {}:{}, "
                      "or raise launch.join_timeout",
                      rank, base::human_duration(limit), e.master_address, e.master_port));
    if (waited > kSilentWait && e.global_rank == 0 && !std::exchange(told, true))
      base::info("waiting for rank {}", rank);
  }
  return hosts;
}
}  // namespace

void place_among(const std::vector<std::string>& hosts, RankEnvironment& environment) {
  const auto rank = static_cast<size_t>(environment.global_rank);
  const auto count = [&](size_t end) {
    return static_cast<int>(std::count(hosts.begin(), hosts.begin() + static_cast<std::ptrdiff_t>(end), hosts[rank]));
  };
  environment.local_rank = count(rank);
  environment.local_world_size = count(hosts.size());
  std::vector<std::string> machines;  // in the order of their first ranks
  for (const std::string& host : hosts)
    if (std::find(machines.begin(), machines.end(), host) == machines.end()) machines.push_back(host);
  environment.node_rank = static_cast<int>(std::find(machines.begin(), machines.end(), hosts[rank]) - machines.begin());
  environment.num_nodes = static_cast<int>(machines.size());
  environment.local_is_unknown = false;
}

void find_local_ranks(RankEnvironment& environment, const LaunchSettings& settings) {
  RankEnvironment& e = environment;
  const std::chrono::milliseconds timeout = settings.join_timeout;
  const auto gives_up = [patience = patience_when_stopped(settings.grace)] {
    end_wait_when_stopped(patience, "the other ranks");
    return false;
  };
  if (e.global_rank == 0)
    e.server = std::make_shared<store::Server>(base::FileDescriptor(std::exchange(e.store_fd, -1)),
                                               store::ServerOptions{.token = e.token, .job = e.job_id});
  store::Client client({.place = {.host = e.server ? e.server->reachable_at() : e.master_address,
                                  .port = e.server ? e.server->port() : e.master_port,
                                  .token = e.token},
                        .place_file = e.meeting_file,
                        .self = {.job = e.job_id, .name = fmt::format("rank {}", e.global_rank)},
                        .timeout = timeout,
                        .gives_up = gives_up});
  client.set(key_of(e.global_rank), this_host());
  place_among(hosts_of_ranks(client, e, timeout, gives_up), e);
}

void take_over_first_rank(ParsedSettings& parsed, RankEnvironment& environment) {
  Settings& s = parsed.settings;
  const RankEnvironment& e = environment;
  if (!e.local_is_unknown || !parsed.given("devices") || parsed.given("num_nodes") || !s.devices ||
      *s.devices >= e.world_size)
    return;
  const auto devices = static_cast<int>(*s.devices);
  if (e.world_size % devices != 0 || e.global_rank % devices != 0)
    throw UsageError(fmt::format(
        "RANK={} and WORLD_SIZE={} with devices {}: on each machine RANK is the number of its first rank, so devices "
        "must divide both; for a process a rank leave devices out",
        e.global_rank, e.world_size, devices));
  s.num_nodes = e.world_size / devices;
  s.launch.node_rank = e.global_rank / devices;
  s.launch.master_addr = e.master_address;
  s.launch.master_port = e.master_port;
  environment = {};
}

}  // namespace trireme::launch
