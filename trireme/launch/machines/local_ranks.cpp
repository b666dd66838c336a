#include "trireme/launch/machines/local_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/machines/same_settings.h"
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

// What a rank says of itself: its host, and LOCAL_RANK if it is set.
constexpr char kAfterHost = '\n';

std::string key_of(int rank) { return fmt::format("local/host/{}", rank); }

constexpr std::chrono::seconds kSilentWait{2};  // before a rank tells whom it waits for

using Clock = std::chrono::steady_clock;

/// Rank 0 begins to serve the store.
store::Client join_store(RankEnvironment& e, std::chrono::milliseconds timeout, const std::function<bool()>& gives_up) {
  if (e.global_rank == 0)
    e.server = std::make_shared<store::Server>(base::FileDescriptor(std::exchange(e.store_fd, -1)),
                                               store::ServerOptions{.token = e.token, .job = e.job_id});
  try {
    return store::Client({.place = {.host = e.server ? e.server->reachable_at() : e.master_address,
                                    .port = e.server ? e.server->port() : e.master_port,
                                    .token = e.token},
                          .place_file = e.meeting_file,
                          .self = {.job = e.job_id, .name = fmt::format("rank {}", e.global_rank)},
                          .timeout = timeout,
                          .gives_up = gives_up});
  } catch (const Stopped&) {
    throw;
  } catch (const Error& error) {
    throw Error(fmt::format("reaching the store at {}:{} failed: {}; {}", e.master_address, e.master_port, error.what(),
                            store::kWhereToLook));
  }
}

/// What each rank has said.
struct Said {
  std::vector<std::string> hosts, local_ranks;
};

/// `look` is called while a rank is waited for.
Said said_by_ranks(store::Client& client, const RankEnvironment& e, std::chrono::milliseconds limit,
                   const std::function<bool()>& look) {
  const auto start = Clock::now();
  Said said;
  bool told = false;
  while (std::ssize(said.hosts) < e.world_size) {
    end_if_one_is_refused(client, e);
    const int rank = static_cast<int>(said.hosts.size());
    if (const auto words = client.get(key_of(rank), std::min(limit, kLookForRefusal))) {
      const size_t end = words->find(kAfterHost);
      said.hosts.push_back(words->substr(0, end));
      said.local_ranks.push_back(words->substr(end + 1));
      continue;
    }
    look();
    const auto waited = Clock::now() - start;
    if (waited > limit) throw Error(not_come({rank}, limit, e));
    if (waited > kSilentWait && e.global_rank == 0 && !std::exchange(told, true))
      base::info("waiting for rank {}", rank);
  }
  return said;
}
}  // namespace

std::string unlike_said(const std::vector<std::string>& hosts, const std::vector<std::string>& said) {
  std::map<std::string_view, int> counted;  // ranks so far, by host
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const int found = counted[hosts[rank]]++;
    if (said[rank].empty() || said[rank] == std::to_string(found)) continue;
    const std::string name = hosts[rank].substr(0, hosts[rank].find(' '));
    return fmt::format(
        "rank {} ({}) has LOCAL_RANK={}, but it is number {} of the ranks that meet from {}; leave LOCAL_RANK out, or "
        "set LOCAL_WORLD_SIZE, too",
        rank, name, said[rank], found, name);
  }
  return "";
}

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

void find_local_ranks(RankEnvironment& environment, const Settings& settings) {
  RankEnvironment& e = environment;
  const std::chrono::milliseconds timeout = settings.launch.join_timeout;
  const auto gives_up = [patience = patience_when_stopped(settings.launch.grace)] {
    end_wait_when_stopped(patience, "the other ranks");
    return false;
  };
  const auto for_rank_0 = [&, start = Clock::now(), told = false]() mutable {
    if (!told && Clock::now() - start > kSilentWait) {
      told = true;
      base::info("waiting for rank 0 at {}:{}", e.master_address, e.master_port);
    }
    return gives_up();
  };
  store::Client client = join_store(e, timeout, for_rank_0);
  require_same_settings(client, e, common_settings(settings, e), timeout, gives_up);
  client.set(key_of(e.global_rank), fmt::format("{}{}{}", this_host(), kAfterHost,
                                                e.said_local_rank ? std::to_string(*e.said_local_rank) : ""));
  const Said said = said_by_ranks(client, e, timeout, gives_up);
  if (!e.local_is_unknown) return;
  const std::string why = unlike_said(said.hosts, said.local_ranks);
  if (!why.empty()) {  // every rank finds it
    tell_all(client, e, why, base::kRefused);
    throw UsageError(why);
  }
  place_among(said.hosts, e);
}

bool are_by_hand(const RankEnvironment& e) {
  return e.launched && e.world_size > 1 && e.launcher != "trireme" && e.job_id.empty() && e.restart_count == 0;
}

void tell_others(RankEnvironment environment, MeetingOptions options, const std::exception& why) try {
  RankEnvironment& e = environment;
  options.timeout = kTimeToTell;
  std::error_code ignored;
  const bool makes_folder = !std::filesystem::exists(options.out_dir, ignored);
  {
    const MeetingFile file(e, options);
    store::Client client = join_store(e, kTimeToTell, stop_requested);
    constexpr std::string_view kPrefix = "error: ";
    std::string_view said = why.what();
    if (said.starts_with(kPrefix)) said.remove_prefix(kPrefix.size());
    const int code = base::exit_code_of(why);
    tell_all(client, e,
             fmt::format("rank {} {}: {}", e.global_rank, code == base::kRefused ? "was refused" : "failed", said),
             code);
  }
  if (makes_folder) std::filesystem::remove(options.out_dir, ignored);
} catch (const std::exception&) {  // the others wait as for a rank that was not started
}

void take_over_first_rank(ParsedSettings& parsed, RankEnvironment& environment) {
  Settings& s = parsed.settings;
  const RankEnvironment& e = environment;
  if (!e.local_is_unknown || e.said_local_rank || !parsed.given("devices") || parsed.given("num_nodes") || !s.devices ||
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
