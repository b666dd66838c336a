#include "trireme/train/ranks.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/factory.h"
#include "trireme/comm/gloo_tls.h"
#include "trireme/config/choices.h"
#include "trireme/launch/network.h"

namespace trireme::train {
namespace {

// Ranks on the mpi backend meet through MPI, the others through a store.
bool needs_store(const config::Settings& settings, const launch::RankEnvironment& environment) {
  return environment.world_size > 1 && settings.comm.backend != config::Backend::mpi;
}

// Our launcher has bound the socket before it started the ranks of one host.
bool launcher_listens(const launch::RankEnvironment& environment) {
  return environment.launcher == "trireme" && environment.local_world_size == environment.world_size;
}

}  // namespace

comm::StoreHandle open_job_store(const config::Settings& settings, const launch::RankEnvironment& environment) {
  if (environment.token.empty())
    throw UsageError(fmt::format(
        "rank {} was not told the token of its job: start the ranks with trireme launch, or make a launch::MeetingFile "
        "before they meet",
        environment.global_rank));
  comm::StoreOptions options{.host = environment.master_address,
                             .port = static_cast<uint16_t>(environment.master_port),
                             .token = environment.token,
                             .job = environment.job_id,
                             .name = fmt::format("rank {}", environment.global_rank),
                             .is_server = environment.hosts_store(),
                             .place_file = environment.meeting_file,
                             .listens_already = launcher_listens(environment),
                             .timeout = settings.comm.timeout};
  if (environment.store_fd >= 0) options.listen_fd = environment.store_fd;
  return comm::open_store(options);
}

RankMeeting meet(const config::Settings& settings, const launch::RankEnvironment& environment) {
  RankMeeting m;
  comm::GroupOptions& options = m.options;
  options.backend = config::name_of(settings.comm.backend);
  options.timeout = settings.comm.timeout;
  options.bf16_sums = settings.comm.compression == config::Compression::bf16;
  options.recorder = m.recorder = std::make_shared<comm::FlightRecorder>();
  // Ranks of one host reach each other through loopback, those of several the way that leads to rank 0.
  options.interface = environment.local_world_size == environment.world_size
                          ? "lo"
                          : launch::interface_towards(environment.master_address);
  if (needs_store(settings, environment)) {
    m.store = open_job_store(settings, environment);
    options.store = m.store.store;
    if (settings.comm.tls) comm::use_gloo_tls(*options.store, environment.global_rank, options.timeout);
  }
  // A restarted attempt must not read the keys of the one before it.
  options.name = environment.restart_count > 0 ? fmt::format("#{}", environment.restart_count) : "";
  return m;
}

Ranks connect_ranks(const config::Settings& settings, const launch::RankEnvironment& environment,
                    const plan::StepPlan& plan, StartPhases* phases) {
  Ranks ranks;
  ranks.meeting = meet(settings, environment);
  if (phases != nullptr) phases->end("rendezvous");
  ranks.communicators = engine::connect(plan, ranks.meeting.options, settings.engine.poison);
  ranks.backend = ranks.communicators.world->backend();
  if (ranks.meeting.options.bf16_sums && ranks.backend != "gloo" && environment.global_rank == 0)
    base::warn("comm.compression bf16 is ignored: ranks on backend {} send no gradients that it could compress",
               ranks.backend);
  return ranks;
}

}  // namespace trireme::train
