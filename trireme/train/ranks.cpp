#include "trireme/train/ranks.h"

#include <fmt/format.h>

#include "trireme/comm/factory.h"
#include "trireme/comm/mesh.h"
#include "trireme/config/choices.h"
#include "trireme/config/mesh_shape.h"

namespace trireme::train {

Ranks connect_ranks(const config::Settings& settings, const launch::RankEnvironment& environment) {
  comm::GroupOptions options;
  options.backend = config::name_of(settings.comm.backend);
  // The ranks that share the data: one group along these axes, today the whole world.
  const config::MeshShape shape = config::mesh_shape(settings, environment.world_size);
  const comm::ProcessMesh mesh({.pp = static_cast<int>(shape.pp),
                                .replicate = static_cast<int>(shape.replicate),
                                .shard = static_cast<int>(shape.shard),
                                .cp = static_cast<int>(shape.cp),
                                .tp = static_cast<int>(shape.tp)},
                               environment.world_size);
  const auto data_axes = {comm::Axis::replicate, comm::Axis::shard, comm::Axis::cp};
  options.global_ranks = mesh.group(environment.global_rank, data_axes);
  options.rank = mesh.group_rank(environment.global_rank, data_axes);
  options.size = mesh.size(data_axes);
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
  const std::string attempt = environment.restart_count > 0 ? fmt::format("#{}", environment.restart_count) : "";
  const auto make = [&](const std::string& name) {
    options.name = name + attempt;
    return comm::make_communicator(options);
  };
  ranks.communicators.world = make("world");
  ranks.communicators.gather = make("gather");
  ranks.communicators.reduce = make("reduce");
  ranks.backend = ranks.communicators.world->backend();
  return ranks;
}

}  // namespace trireme::train
