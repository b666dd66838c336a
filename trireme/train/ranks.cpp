#include "trireme/train/ranks.h"

#include <fmt/format.h>

#include "trireme/comm/factory.h"
#include "trireme/config/choices.h"

namespace trireme::train {

Ranks connect_ranks(const config::Settings& settings, const launch::RankEnvironment& environment,
                    const plan::StepPlan& plan) {
  comm::GroupOptions options;
  options.backend = config::name_of(settings.comm.backend);
  options.timeout = settings.comm.timeout;
  options.recorder = std::make_shared<comm::FlightRecorder>();
  // Ranks on several hosts reach each other through the host's default interface, those of one through loopback.
  options.interface = environment.local_world_size == environment.world_size ? "lo" : "";
  Ranks ranks;
  ranks.recorder = options.recorder;
  if (environment.world_size > 1) {
    comm::StoreOptions store{.host = environment.master_address,
                             .port = static_cast<uint16_t>(environment.master_port),
                             .is_server = environment.hosts_store(),
                             .timeout = settings.comm.timeout};
    if (environment.store_fd >= 0) store.listen_fd = environment.store_fd;
    ranks.store = comm::open_store(store);
    options.store = ranks.store.store;
  }
  // A restarted attempt must not read the keys of the one before it.
  options.name = environment.restart_count > 0 ? fmt::format("#{}", environment.restart_count) : "";
  ranks.communicators = engine::connect(plan, options, settings.engine.poison);
  ranks.backend = ranks.communicators.world->backend();
  return ranks;
}

}  // namespace trireme::train
