#include "trireme/launch/machines/ssh_hosts.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <set>
#include <sstream>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/identity/rank_setup.h"
#include "trireme/launch/machines/host_filter.h"
#include "trireme/launch/machines/print_job.h"
#include "trireme/launch/machines/ssh_start.h"
#include "trireme/store/token.h"

namespace trireme::launch {
namespace {
// The variables for a machine: settings, but neither descriptors nor this machine's own name; and its slots.
std::vector<std::pair<std::string, std::string>> variables(const HostRanks& host) {
  std::vector<std::pair<std::string, std::string>> found;
  if (!host.slots.empty()) found.emplace_back("CUDA_VISIBLE_DEVICES", fmt::format("{}", fmt::join(host.slots, ",")));
  for (const auto& [name, value] : own_environment()) {
    const bool is_ours = name.starts_with("TRIREME_") && !name.ends_with("_FD") && name != "TRIREME_HOST_ID";
    if (is_ours || name == "OMP_NUM_THREADS" || name == "MKL_NUM_THREADS") found.emplace_back(name, value);
  }
  return found;
}

// Its machines become launch.hosts: a pipe (<(scontrol show hostnames)) can be read only once.
void read_hostfile(LaunchSettings& launch) {
  if (!launch.hostfile) return;
  if (launch.hosts)
    throw UsageError(fmt::format("error: launch.hosts and launch.hostfile {} both name machines; say one of them",
                                 *launch.hostfile));
  launch.hosts.emplace();
  for (const HostRanks& host :
       parse_hostfile(*launch.hostfile, base::read_file_or_pipe(*launch.hostfile, base::kLargestSideFile)))
    launch.hosts->push_back(host.ranks == 0 ? host.name : fmt::format("{}:{}", host.name, host.ranks));
  launch.hostfile.reset();
}
}  // namespace

std::vector<HostRanks> ssh_hosts(const Settings& settings) {
  std::vector<HostRanks> hosts;
  if (settings.launch.hosts)
    for (const std::string& text : *settings.launch.hosts) hosts.push_back(parse_host("launch.hosts", text));
  std::set<std::string> names;
  for (const HostRanks& host : hosts)
    if (!names.insert(host.name).second)
      throw UsageError(
          fmt::format("error: the list of machines names {} twice; say {}:RANKS once", host.name, host.name));
  const auto& [include, exclude] = std::tie(settings.launch.include, settings.launch.exclude);
  if ((include || exclude) && hosts.empty())
    throw UsageError(
        "error: launch.include and launch.exclude choose machines of launch.hosts or launch.hostfile; name them there");
  for (HostRanks& host : hosts)
    if ((include || exclude) && host.ranks == 0) host.ranks = static_cast<int>(settings.devices.value_or(1));
  return filter_hosts(hosts, include.value_or(""), exclude.value_or(""));
}

void take_over_hosts(ParsedSettings& parsed) {
  read_hostfile(parsed.settings.launch);
  const std::vector<HostRanks> hosts = ssh_hosts(parsed.settings);
  if (hosts.empty()) return;
  Settings& s = parsed.settings;
  const auto count = static_cast<int64_t>(hosts.size());
  if (parsed.given("num_nodes") && s.num_nodes != count)
    throw UsageError(fmt::format("error: num_nodes {} contradicts the {} machines of the list; leave num_nodes out",
                                 s.num_nodes, count));
  s.num_nodes = count;
  for (const HostRanks& host : hosts) {
    const int64_t ranks = host.ranks != 0 ? host.ranks : s.devices.value_or(1);
    if (host.ranks != hosts.front().ranks)
      throw UsageError(fmt::format(
          "error: {} has {} ranks and {} has {}; every machine of a job runs as many as the others", hosts.front().name,
          hosts.front().ranks == 0 ? s.devices.value_or(1) : hosts.front().ranks, host.name, ranks));
    if (parsed.given("devices") && s.devices != ranks)
      throw UsageError(
          fmt::format("error: devices {} contradicts {}:{}; say one of them", *s.devices, host.name, ranks));
  }
  s.devices = hosts.front().ranks != 0 ? hosts.front().ranks : s.devices.value_or(1);
}

std::vector<std::string> words_on_host(const std::string& subcommand, const Settings& settings,
                                       std::span<const std::string> arguments, const HostPlace& place) {
  std::istringstream in(subcommand);
  std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  for (std::string& word : command_of_the_job(arguments)) words.push_back(std::move(word));
  // Also those of a YAML file, which every machine reads.
  for (const std::string_view key : kMachineSettings)
    words.insert(words.end(), {fmt::format("--launch.{}", key), "null"});
  words.insert(words.end(), {"--devices", std::to_string(settings.devices.value_or(1))});
  if (place.count > 1)
    words.insert(words.end(), {"--num_nodes", std::to_string(place.count), "--launch.node_rank",
                               std::to_string(place.rank), "--launch.master_addr", place.first_address});
  return words;
}

int start_on_hosts(const Settings& settings, bool saves,
                   const std::function<std::vector<std::string>(const HostPlace&)>& words,
                   const std::function<void()>& check) {
  const std::vector<HostRanks> hosts = ssh_hosts(settings);
  const std::string& first = hosts.front().name;  // user@host
  const std::string address = settings.launch.master_addr.value_or(first.substr(first.find('@') + 1));
  if (hosts.size() > 1 && is_loopback(address))
    throw UsageError(
        fmt::format("error: {} is a loopback address, which every machine takes for itself; name the first machine as "
                    "the others reach it{}",
                    address, settings.launch.master_addr ? "" : ", or say --launch.master_addr"));
  SshJob job{.ssh = find_ssh(),
             .program = std::filesystem::read_symlink("/proc/self/exe").string(),
             .grace = settings.launch.grace,
             .saves = saves};
  // With launch.token_file, every machine has the token already.
  const std::string token = settings.launch.token_file ? "" : store::draw_token();
  for (const HostRanks& host : hosts)
    job.hosts.push_back({host.name,
                         {.token = token,
                          .folder = std::filesystem::current_path().string(),
                          .arguments = words({.count = static_cast<int>(hosts.size()),
                                              .rank = static_cast<int>(job.hosts.size()),
                                              .first_address = address}),
                          .environment = variables(host)}});
  check();
  return start_by_ssh(job);
}

}  // namespace trireme::launch
