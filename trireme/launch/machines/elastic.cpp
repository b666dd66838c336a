#include "trireme/launch/machines/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/units.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/identity/rank_setup.h"
#include "trireme/launch/machines/print_job.h"
#include "trireme/launch/machines/same_settings.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/validate.h"

namespace trireme::launch {
namespace {
constexpr int64_t kMostMachines = 100'000;
constexpr int kAnyPort = 0;
constexpr std::chrono::minutes kOnOneMachine{1};  // whoever has the port here writes the meeting file at once

std::optional<int> machines_in(const std::string& text) {
  const auto count = base::parse_count(text);
  if (!count || *count < 1 || *count > kMostMachines) return std::nullopt;
  return static_cast<int>(*count);
}

void read_range(const std::string& text, Elastic& elastic) {
  const auto colon = text.find(':');
  const auto least = machines_in(text.substr(0, colon));
  const auto most = colon == std::string::npos ? least : machines_in(text.substr(colon + 1));
  if (!least || !most || *least > *most)
    throw UsageError(fmt::format(
        "launch.nnodes {} is not a number of machines: say MIN:MAX, for instance 2:4, or one number", text));
  elastic.least = *least;
  elastic.most = *most;
}

void read_endpoint(const std::string& text, Elastic& elastic) {
  constexpr int kTorchrunsPort = 29400;
  const auto colon = text.rfind(':');
  elastic.host = text.substr(0, colon);
  const auto port = colon == std::string::npos ? kTorchrunsPort : base::parse_count(text.substr(colon + 1));
  if (elastic.host.empty() || std::ranges::count(elastic.host, ':') == 1 || !port || *port < 0 || *port > 65535)
    throw UsageError(fmt::format("launch.rdzv_endpoint {} is not HOST:PORT, a port from 1 to 65535", text));
  refuse_ipv6("launch.rdzv_endpoint " + text, elastic.host);
  elastic.port = static_cast<int>(*port);
}

// torchrun's HOST:0, any free port. A machine alone meets nobody.
void forget_any_port(LaunchSettings& launch, const Elastic& elastic) {
  if (elastic.most > 1)
    throw UsageError(
        fmt::format("launch.rdzv_endpoint {} means any free port, which the other machines cannot know: with {} "
                    "machines give HOST:PORT, a port from 1 to 65535, the same on each",
                    *launch.rdzv_endpoint, elastic.most));
  launch.rdzv_endpoint.reset();
}

bool can_run(Settings settings, int machines) {
  settings.num_nodes = machines;
  try {
    validate(settings, world_size(settings));
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

// The decider's listening socket; empty on the other machines. If machines have numbers, the decider is machine 0. Else
// it is the first launcher on the machine with the endpoint's address. `taken`: why that one cannot listen.
base::FileDescriptor listen_if_ours(const Elastic& elastic, std::optional<int> number, std::string& taken) {
  if (number)
    return *number > 0 ? base::FileDescriptor() : MeetingPoint(MeetingPoint::Reach::all_hosts, elastic.port).fd;
  const std::string address = own_address_for(elastic.host);
  if (address.empty()) return {};
  try {
    return store::listen_at(address, elastic.port);
  } catch (const Error& error) {
    taken = error.what();
    base::info("{}; this launcher looks for another that serves there", taken);
    return {};
  }
}
}  // namespace

std::optional<Elastic> elastic_of(Settings& settings) {
  LaunchSettings& l = settings.launch;
  Elastic elastic{.least = static_cast<int>(settings.num_nodes), .most = static_cast<int>(settings.num_nodes)};
  if (l.nnodes) {
    read_range(*l.nnodes, elastic);
    if (settings.num_nodes > 1 && (elastic.least != settings.num_nodes || elastic.most != settings.num_nodes))
      throw UsageError(fmt::format("launch.nnodes {} and num_nodes {} contradict each other; leave num_nodes out",
                                   *l.nnodes, settings.num_nodes));
    if (!l.rdzv_endpoint && (elastic.most > 1 || elastic.least != elastic.most))
      throw UsageError(
          fmt::format("launch.nnodes {} needs launch.rdzv_endpoint HOST:PORT, where the machines' launchers meet; this "
                      "machine has {}",
                      *l.nnodes, own_address()));
  }
  if (l.rdzv_endpoint) {
    read_endpoint(*l.rdzv_endpoint, elastic);
    if (elastic.port == kAnyPort) forget_any_port(l, elastic);
  }
  elastic.settings = common_settings_of_machines(settings);
  if (l.rdzv_endpoint) return elastic;
  if (settings.num_nodes == 1 || l.max_restarts == 0 || !l.master_addr) return std::nullopt;
  elastic.host = *l.master_addr;
  elastic.port = static_cast<int>(l.master_port);
  return elastic;
}

void refuse_elastic(const Settings& settings, const RankEnvironment& environment) {
  if (!settings.launch.nnodes && !settings.launch.rdzv_endpoint) return;
  const char* what = settings.launch.nnodes ? "launch.nnodes" : "launch.rdzv_endpoint";
  if (settings.launch.print) {
    refuse_changing_machines(settings.launch);
    throw UsageError(
        fmt::format("{} has no place in a job file, whose launcher starts the machines: leave it out", what));
  }
  if (settings.comm.backend == comm::Backend::mpi)
    throw UsageError(
        fmt::format("{} lets machines come and go, but mpirun fixes the number of MPI's ranks: leave it out, or use "
                    "--comm.backend gloo",
                    what));
  if (environment.launched && environment.launcher != "trireme")
    throw UsageError(fmt::format("{} is for Trireme's own launcher, but {} started this process; leave it out", what,
                                 environment.launcher));
}

void refuse_restarts(const ParsedSettings& parsed, const RankEnvironment& rank) {
  if (parsed.settings.launch.max_restarts == 0 || !rank.launched || rank.launcher == "trireme") return;
  if (parsed.typed("launch.max_restarts"))
    throw UsageError(
        fmt::format("launch.max_restarts is for Trireme's own launcher, but {} started this process; leave it out, and "
                    "let {} start the job again",
                    rank.launcher, rank.launcher));
  if (rank.global_rank == 0)
    base::info("launch.max_restarts has no effect here: {} started the ranks, and only it can start them again",
               rank.launcher);
}

void fit_num_nodes(Settings& settings, const Elastic& elastic) {
  int machines = elastic.most;
  while (machines > elastic.least && !can_run(settings, machines)) --machines;
  settings.num_nodes = machines;
}

std::shared_ptr<Rendezvous> make_rendezvous(const Elastic& elastic, const Settings& settings, bool fits_any_number,
                                            std::optional<MeetingFile>& meeting) {
  const LaunchSettings& l = settings.launch;
  const std::optional<int> number(l.node_rank);
  std::string taken;
  base::FileDescriptor listener = listen_if_ours(elastic, number, taken);
  // For the meeting file, the decider is rank 0 and the other launchers are other ranks.
  RankEnvironment environment;
  environment.launched = true;
  environment.launcher = "trireme";
  environment.global_rank = listener.get() >= 0 ? 0 : 1;
  environment.world_size = 2;
  environment.master_address = elastic.host;
  environment.master_port = elastic.port;
  environment.job_id = fmt::format("{}-{}", elastic.host, elastic.port);
  environment.store_fd = listener.get();
  MeetingOptions meets{.out_dir = settings.out_dir,
                       .token_file = l.token_file,
                       .timeout = l.join_timeout,
                       .patience_when_stopped = {}};  // nothing has begun, so none is needed
  if (!taken.empty()) {
    meets.timeout = std::min<std::chrono::milliseconds>(meets.timeout, kOnOneMachine);
    meets.without_file = fmt::format(
        "{}, and no launcher of this job serves there; choose another port (rdzv_endpoint or master_port), "
        "the same on every machine",
        taken);
  }
  meeting.emplace(environment, meets);
  RendezvousOptions options{.host = elastic.host,
                            .port = elastic.port,
                            .listener = std::move(listener),
                            .token = environment.token,
                            .place_file = environment.meeting_file,
                            .job = environment.job_id,
                            .least = elastic.least,
                            .most = elastic.most,
                            .settings = elastic.settings,
                            .num_ranks = static_cast<int>(settings.devices.value_or(1)),
                            .node_rank = number,
                            .max_restarts = static_cast<int>(l.max_restarts),
                            .join_timeout = l.join_timeout,
                            .last_call = l.last_call};
  if (!fits_any_number) options.can_run_on = [settings](int machines) { return can_run(settings, machines); };
  return std::make_shared<Rendezvous>(std::move(options));
}

}  // namespace trireme::launch
