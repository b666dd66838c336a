#include "trireme/train/ranks.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/factory.h"
#include "trireme/config/choices.h"
#include "trireme/launch/network.h"

namespace trireme::train {
namespace {

// Ranks on the mpi backend meet through MPI, the others through a store.
bool needs_store(const config::Settings& settings, const launch::RankEnvironment& environment) {
  return environment.world_size > 1 && settings.comm.backend != config::Backend::mpi;
}

}  // namespace

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
    comm::StoreOptions store{.host = environment.master_address,
                             .port = static_cast<uint16_t>(environment.master_port),
                             .is_server = environment.hosts_store(),
                             .timeout = settings.comm.timeout};
    if (environment.store_fd >= 0) store.listen_fd = environment.store_fd;
    m.store = comm::open_store(store);
    options.store = m.store.store;
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
