#include "trireme/launch/machines/nodes.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/launch/identity/launchers.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/identity/rank_setup.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/store/token.h"

namespace trireme::launch {
namespace {
// From the setting, or from an indexed Kubernetes job.
int node_rank(const Settings& settings) {
  const auto count = static_cast<int>(settings.num_nodes);
  const std::optional<int> pod = pod_index(std::getenv);
  if (!settings.launch.node_rank && !pod)
    throw UsageError(
        fmt::format("num_nodes {0}: launch.node_rank must say which machine this is, 0 to {1}; start the same command "
                    "on each, or all of them with srun or torchrun",
                    count, count - 1));
  if (!settings.launch.node_rank && *pod < count) return *pod;
  if (!settings.launch.node_rank)
    throw UsageError(
        fmt::format("JOB_COMPLETION_INDEX {} is not one of the num_nodes {}: give the job as many completions, and the "
                    "same parallelism",
                    *pod, count));
  if (*settings.launch.node_rank < count) return static_cast<int>(*settings.launch.node_rank);
  throw UsageError(fmt::format("launch.node_rank {} is not one of the num_nodes {}: the machines are 0 to {}",
                               *settings.launch.node_rank, count, count - 1));
}

std::string master_address(const Settings& settings) {
  std::optional<std::string> address = settings.launch.master_addr;
  if (const auto pod = pod_index(std::getenv); !address && pod) {
    address = first_pod(full_host_name(), *pod);
    if (address->empty())
      throw UsageError(
          fmt::format("num_nodes {}: this pod's name, {}, does not say how to reach pod 0; give the job a headless "
                      "service and its pods that service as subdomain, or say --launch.master_addr",
                      settings.num_nodes, full_host_name()));
  }
  if (!address)
    throw UsageError(fmt::format(
        "num_nodes {}: launch.master_addr must be the address of machine 0, as the other machines reach it{}",
        settings.num_nodes, settings.launch.node_rank == 0 ? "; this machine has " + own_address() : ""));
  refuse_ipv6("launch.master_addr " + *address, *address);
  if (is_loopback(*address))
    throw UsageError(fmt::format(
        "launch.master_addr {} is a loopback address, which every machine takes for itself: with num_nodes {} it must "
        "be one of machine 0's own{}",
        *address, settings.num_nodes, settings.launch.node_rank == 0 ? ", for instance " + own_address() : ""));
  return *address;
}
}  // namespace

bool is_launcher_of_a_node(const RankEnvironment& environment, const Settings& settings) {
  // A single task can start its one rank again; of several machines' tasks none can do so for the others.
  const bool restarts_one = settings.devices == 1 && environment.num_nodes == 1 && settings.launch.max_restarts > 0;
  return environment.launcher == "srun" && environment.world_size == environment.num_nodes &&
         (settings.devices.value_or(1) > 1 || restarts_one);
}

bool is_first_node(const Settings& settings, const RankEnvironment& environment) {
  if (environment.launched) return environment.global_rank == 0;
  return settings.num_nodes == 1 || node_rank(settings) == 0;
}

void check_nodes(const Settings& settings, const RankEnvironment& environment) {
  if (settings.num_nodes == 1 && settings.launch.node_rank.value_or(0) > 0 && !environment.launched)
    throw UsageError(fmt::format(
        "launch.node_rank {} is not one of the num_nodes 1: give num_nodes, the number of machines, or leave "
        "it out",
        *settings.launch.node_rank));
  if (settings.launch.token_file) store::read_token_file(*settings.launch.token_file);
  if (settings.num_nodes == 1 || environment.launched) return;
  node_rank(settings);
  master_address(settings);
}

MeetingOptions meeting_options(const Settings& settings) {
  return {.out_dir = settings.out_dir,
          .token_file = settings.launch.token_file,
          .timeout = settings.launch.join_timeout,
          .patience_when_stopped = patience_when_stopped(settings.launch.grace)};
}

Nodes choose_nodes(const Settings& settings, RankEnvironment& environment, std::optional<MeetingFile>& meeting) {
  Nodes nodes{.count = static_cast<int>(settings.num_nodes)};
  if (settings.launch.token_file) nodes.token = store::read_token_file(*settings.launch.token_file);
  if (settings.num_nodes == 1) return nodes;
  if (environment.launched) {  // srun's task
    nodes.rank = environment.global_rank;
    meeting.emplace(environment, meeting_options(settings));
    nodes.master_address = environment.master_address;
    nodes.master_port = environment.master_port;
    nodes.store_fd = std::exchange(environment.store_fd, -1);
    nodes.job_id = environment.job_id;
    nodes.token = environment.token;
    return nodes;
  }
  nodes.rank = node_rank(settings);
  nodes.master_address = master_address(settings);
  nodes.master_port = static_cast<int>(settings.launch.master_port);
  if (const std::string doubt = doubt_about(nodes.master_address, nodes.rank == 0); !doubt.empty())
    base::warn("{}; the machines wait for each other all the same", doubt);
  if (pod_index(std::getenv))
    base::info("Kubernetes started machine {} of {}; the ranks meet at {}:{}", nodes.rank, nodes.count,
               nodes.master_address, nodes.master_port);
  nodes.job_id = fmt::format("{}-{}", nodes.master_address, nodes.master_port);
  if (nodes.rank == 0) nodes.store_fd = MeetingPoint(MeetingPoint::Reach::all_hosts, nodes.master_port).fd.release();
  return nodes;
}

}  // namespace trireme::launch
