#include "trireme/train/ranks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/adapt/from_settings.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/comm/checked_communicator.h"
#include "trireme/comm/factory.h"
#include "trireme/config/choices.h"
#include "trireme/launch/hang/hang.h"
#include "trireme/launch/identity/network.h"
#include "trireme/launch/identity/other_variables.h"
#include "trireme/launch/machines/same_settings.h"
#include "trireme/launch/supervise/headline.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/model/from_settings.h"
#include "trireme/store/client.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/same_on_ranks.h"
#include "trireme/train/same_weights.h"

namespace trireme::train {
namespace {

constexpr std::chrono::seconds kTimeToTell{2};
constexpr std::chrono::seconds kSilence{2};  // before the user is told whom a run waits for

// Ranks on the mpi backend meet through MPI, the others through a store.
bool needs_store(const Settings& settings, const launch::RankEnvironment& environment) {
  return environment.world_size > 1 && settings.comm.backend != comm::Backend::mpi;
}

std::shared_ptr<comm::FlightRecorder> make_recorder(const Settings& settings,
                                                    const launch::RankEnvironment& environment) {
  const std::filesystem::path folder = base::flight_folder(settings.out_dir);
  std::error_code ignored;
  std::filesystem::remove(folder / launch::kVerdictName, ignored);  // an earlier job's
  if (environment.world_size == 1) remove_earlier_flights(settings.out_dir);
  return comm::FlightRecorder::of_environment(
      {.global_rank = environment.global_rank,
       .world_size = environment.world_size,
       .job = fmt::format("{} {}", environment.job_id, environment.restart_count),
       .timeout = settings.comm.timeout},
      folder);
}

// Called while this rank waits for others: until the run begins, nothing else checks for a request to stop.
std::function<void()> stop_check(const Settings& settings) {
  return [patience = launch::patience_when_stopped(settings.launch.grace)] {
    launch::end_wait_when_stopped(patience, "the other ranks");
  };
}

bool between_hosts(const launch::RankEnvironment& e) { return e.local_world_size != e.world_size; }

bool could_seal(const Settings& settings) {
  using comm::Backend;
  return settings.accelerator == engine::Accelerator::cpu &&
         (settings.comm.backend == Backend::automatic || settings.comm.backend == Backend::gloo);
}

// Says what sealing costs, or what the user gives up without it. Figures: docs/security.md.
void tell_protection(const comm::GroupOptions& options, const launch::RankEnvironment& environment) {
  if (!between_hosts(environment) || environment.global_rank != 0) return;
  if (options.sealed)
    base::info(
        "what ranks send between machines is encrypted (comm.tls), which costs a pass of AES-256-GCM over the bytes on "
        "both sides; on a network where nobody else can listen, --comm.tls false avoids this cost");
  else
    base::info(
        "what ranks send between machines is not encrypted (comm.tls false): anybody on the network can read and "
        "change data, gradients and weights");
}

// A restarted attempt must not read the keys of the one before it.
std::string attempt_of(const launch::RankEnvironment& environment) {
  return environment.restart_count > 0 ? fmt::format("#{}", environment.restart_count) : "";
}

// Ranks that several launchers start may come minutes apart, and with settings of their own. Once all are there, they
// have the same settings, and comm.timeout bounds every wait but those with comm::Patience.
void wait_for_all(const Settings& settings, const launch::RankEnvironment& e, store::Client& store) {
  using std::chrono::milliseconds;
  using Clock = std::chrono::steady_clock;
  const milliseconds limit = settings.launch.join_timeout, soon = std::min<milliseconds>(limit, kSilence);
  const auto start = Clock::now();
  const comm::Group everyone{.rank = e.global_rank, .size = e.world_size, .timeout = limit};
  const std::function<void()> end_if_stopped = stop_check(settings);
  std::vector<std::string> keys;
  for (int rank = 0; rank < e.world_size; ++rank) keys.push_back(fmt::format("trireme/came{}/{}", attempt_of(e), rank));
  const auto have_come = [&](milliseconds patience) {
    const auto until = Clock::now() + patience;
    for (;;) {
      const auto left = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(until - Clock::now()));
      if (store.wait(keys, std::min(left, launch::kLookForRefusal))) return true;
      launch::end_if_one_is_refused(store, e);
      end_if_stopped();
      if (left <= launch::kLookForRefusal) return false;
    }
  };
  std::vector<int> late;
  const auto look = [&] {
    late.clear();
    for (int rank = 0; rank < e.world_size; ++rank)
      if (!store.check({keys[static_cast<size_t>(rank)]})) late.push_back(rank);
  };
  try {
    launch::require_same_settings(store, e, launch::common_settings(settings, e), limit, end_if_stopped);
    store.set(keys[static_cast<size_t>(e.global_rank)], "here");
    if (have_come(soon)) return;
    look();
    if (!late.empty() && limit > soon) {
      if (e.global_rank == 0) base::info("waiting for {}", launch::name_ranks(late));
      if (have_come(limit - soon)) return;
      look();
    }
    if (late.empty()) return;
  } catch (const UsageError&) {
    throw;
  } catch (const launch::Stopped&) {
    throw;
  } catch (const Error& error) {
    comm::throw_comm_error(everyone, "connect", 0, comm::elapsed_since(start), error.what());
  }
  comm::throw_comm_error(everyone, "connect", late.front(), comm::elapsed_since(start),
                         launch::not_come(late, limit, e));
}

// Of what groups and lists follow from.
void require_same_shapes(comm::Communicator& world, const Settings& settings,
                         const launch::RankEnvironment& environment) {
  const auto config = [&] { return model::config_of(settings.model); };
  require_same_folder(world, environment, "the model's configuration", [&] { return fingerprint_of(config()); });
  if (settings.lora.initial_adapter)
    require_same_folder(world, environment, "the adapter's configuration",
                        [&] { return fingerprint_of(*adapt::adapter_config(settings.lora, config())); });
}

// A store that nobody serves is one of a rank 0 that has ended. The launcher is about to say why, and ends the others.
comm::StoreHandle open_store_unless_ended(const comm::StoreOptions& options,
                                          const launch::RankEnvironment& environment) try {
  return comm::open_store(options);
} catch (const CommError&) {
  if (one_launcher_started_all(environment) && environment.global_rank > 0)
    for (int look = 0; look < 20; ++look) {
      launch::end_wait_when_stopped(std::chrono::hours(1), "the store");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  throw;
}

}  // namespace

bool one_launcher_started_all(const launch::RankEnvironment& environment) {
  return environment.launcher == "trireme" && environment.local_world_size == environment.world_size;
}

comm::StoreHandle open_job_store(const Settings& settings, const launch::RankEnvironment& environment) {
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
                             .server = environment.server,
                             .place_file = environment.meeting_file,
                             .listens_already = one_launcher_started_all(environment),  // and bound the socket before
                             .timeout = settings.comm.timeout,
                             .reach_timeout = settings.launch.join_timeout,
                             .while_waiting = stop_check(settings)};
  if (environment.store_fd >= 0) options.listen_fd = environment.store_fd;
  comm::StoreHandle handle = open_store_unless_ended(options, environment);
  if (!one_launcher_started_all(environment)) wait_for_all(settings, environment, *handle.client);
  return handle;
}

comm::GroupOptions group_options(const Settings& settings, const launch::RankEnvironment& environment) {
  comm::GroupOptions options;
  options.backend = config::name_of(settings.comm.backend);
  options.timeout = settings.comm.timeout;
  options.on_device = settings.accelerator == engine::Accelerator::cuda;
  options.sealed = settings.comm.tls.value_or(between_hosts(environment) && could_seal(settings));
  options.bf16_sums = settings.comm.compression == comm::Compression::bf16;
  // Ranks on one host use loopback; on several hosts, the interface that the user names or that leads to rank 0.
  options.interface = "lo";
  if (between_hosts(environment)) {
    options.interface = launch::chosen_interface(std::getenv);
    if (options.interface.empty()) options.interface = launch::interface_towards(environment.master_address);
  }
  return options;
}

void require_same_settings(const Settings& settings, const launch::RankEnvironment& environment,
                           comm::GroupOptions options) {
  options.name = "settings" + attempt_of(environment);
  options.rank = environment.global_rank;
  options.size = environment.world_size;
  options.on_device = options.bf16_sums = false;
  options.timeout = settings.launch.join_timeout;  // the first meeting: rank 0 may still read the data
  const comm::CommunicatorPtr world = comm::make_communicator(options);
  const auto unlike = find_unlike(*world, launch::common_settings(settings, environment));
  if (!unlike || unlike->what.empty()) return;
  const std::string machine = checkpoint::broadcast_text(*world, launch::machine_name(), unlike->rank);
  throw UsageError(launch::refusal_of(launch::name_of_rank(unlike->rank, machine), unlike->what));
}

RankMeeting meet(const Settings& settings, const launch::RankEnvironment& environment) {
  RankMeeting m;
  comm::GroupOptions& options = m.options = group_options(settings, environment);
  options.recorder = m.recorder = make_recorder(settings, environment);
  if (needs_store(settings, environment)) {
    m.store = open_job_store(settings, environment);
    options.store = m.store.store;
  } else if (environment.world_size > 1) {
    require_same_settings(settings, environment, options);
  }
  options.name = attempt_of(environment);
  return m;
}

void tell_hang(const Settings& settings, const launch::RankEnvironment& environment) {
  if (environment.world_size == 1 || environment.launcher == "trireme") return;
  const std::filesystem::path folder = base::flight_folder(settings.out_dir);
  const int first = ::open((folder / launch::kVerdictName).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (first < 0) return std::this_thread::sleep_for(kTimeToTell);
  ::close(first);
  if (const auto verdict = launch::look_for_hang(folder)) {
    const std::string text = fmt::format("hang: {}\n{}", verdict->sentence, verdict->details);
    base::write_file_atomic(folder / launch::kVerdictName, text);
    base::info("{}  the ranks' recorders are in {}: trireme report hang {}", text, folder.string(),
               base::shell_quoted(settings.out_dir));
  }
}

Ranks connect_ranks(const Settings& settings, const launch::RankEnvironment& environment, const plan::StepPlan& plan,
                    StartPhases* phases) {
  Ranks ranks;
  ranks.meeting = meet(settings, environment);
  if (phases != nullptr) phases->end("rendezvous");
  comm::CommunicatorPtr world = engine::connect_world(plan, ranks.meeting.options);
  require_same_shapes(*world, settings, environment);
  ranks.communicators = engine::connect(plan, ranks.meeting.options, settings.engine.poison, std::move(world));
  ranks.backend = ranks.communicators.world->backend();
  if (ranks.backend == "gloo") tell_protection(ranks.meeting.options, environment);
  if (ranks.meeting.options.bf16_sums && ranks.backend != "gloo" && environment.global_rank == 0)
    base::warn("comm.compression bf16 is ignored: ranks on backend {} send no gradients that it could compress",
               ranks.backend);
  return ranks;
}

}  // namespace trireme::train
