#include "trireme/launch/identity/environment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/launch/identity/launchers.h"
#include "trireme/launch/identity/network.h"
#include "trireme/store/token.h"

namespace trireme::launch {
namespace {
constexpr RankNames kCommonNames = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};

bool says_true(const char* text) {
  const std::string_view value = text == nullptr ? "" : text;
  return value == "True" || value == "true" || value == "1";
}

std::string name_of_common_launcher(const EnvironmentLookup& lookup) {
  if (lookup("TRIREME_JOB_ID") != nullptr) return "trireme";
  if (lookup("ACCELERATE_MIXED_PRECISION") != nullptr) return "accelerate launch";
  return lookup("TORCHELASTIC_RUN_ID") != nullptr ? "torchrun" : "the launcher";
}

// With a leftover WORLD_SIZE=1, each rank of a launcher would train alone. A larger WORLD_SIZE is fine: one launcher
// may run inside another, for instance one torchrun on each of srun's nodes.
void refuse_smaller_world(const EnvironmentLookup& lookup, const RankEnvironment& rank) {
  const bool in_step = lookup("SLURM_PROCID") != nullptr && lookup("SLURM_STEP_NUM_TASKS") != nullptr;
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", in_step ? "SLURM_STEP_NUM_TASKS" : ""}) {
    const char* text = lookup(name);
    int size = 0;
    if (text == nullptr || std::from_chars(text, text + std::strlen(text), size).ec != std::errc()) continue;
    refuse_contradiction(size <= rank.world_size, name, size, "at most", "WORLD_SIZE", rank.world_size);
  }
}

// RANK and WORLD_SIZE without LOCAL_WORLD_SIZE, as people export them by hand. DeepSpeed's launcher and scripts for
// srun and mpirun add LOCAL_RANK.
bool read_bare_rank(const EnvironmentLookup& lookup, RankEnvironment& result) {
  const RankNames& names = kCommonNames;
  if (lookup(names.local_world_size) != nullptr) return false;
  const char *rank = lookup(names.rank), *size = lookup(names.world_size);
  if (rank == nullptr && size == nullptr) return false;
  if (rank == nullptr || size == nullptr)
    throw UsageError(
        fmt::format("environment variable {} is not set though {} is; set {} and {}, with MASTER_ADDR and MASTER_PORT, "
                    "for each rank, or none of them",
                    rank == nullptr ? names.rank : names.world_size, rank == nullptr ? names.world_size : names.rank,
                    names.rank, names.world_size));
  result.launched = true;
  result.world_size = required_number(lookup, names.world_size, names.rank, 1, kMaxRanks);
  result.global_rank = required_number(lookup, names.rank, names.world_size, 0, kMaxRanks);
  refuse_contradiction(result.global_rank < result.world_size, names.rank, result.global_rank, "less than",
                       names.world_size, result.world_size);
  if (lookup(names.local_rank) != nullptr) {
    result.said_local_rank = required_number(lookup, names.local_rank, names.rank, 0, kMaxRanks);
    refuse_contradiction(*result.said_local_rank <= result.global_rank, names.local_rank, *result.said_local_rank,
                         "at most", names.rank, result.global_rank);
  }
  const char* address = lookup("MASTER_ADDR");
  const bool one_host = result.world_size == 1 || (address != nullptr && is_spelled_loopback(address));
  if (one_host && result.said_local_rank.value_or(result.global_rank) != result.global_rank)
    throw UsageError(
        fmt::format("environment variables contradict each other: {}={} and {}={}, but with MASTER_ADDR={} all ranks "
                    "are on this host, where the two are the same; leave {} out, or set {}, too",
                    names.local_rank, *result.said_local_rank, names.rank, result.global_rank, address,
                    names.local_rank, names.local_world_size));
  result.local_rank = one_host ? result.global_rank : 0;
  result.local_world_size = one_host ? result.world_size : 1;
  result.local_is_unknown = !one_host;
  return true;
}

// The numbers of this rank from any launcher; a world of one if there is no launcher.
RankEnvironment read_launcher(const EnvironmentLookup& lookup) {
  RankEnvironment result;
  if (read_bare_rank(lookup, result) || read_ranks(lookup, kCommonNames, result)) {
    result.launcher = name_of_common_launcher(lookup);
    refuse_smaller_world(lookup, result);
    return result;
  }
  if (auto rank = read_mpi_rank(lookup)) return *rank;
  if (auto step = read_slurm_step(lookup)) return *step;
  if (auto task = read_flux_task(lookup)) return *task;
  refuse_half_a_launcher(lookup);
  result.unstarted_tasks = unstarted_slurm_tasks(lookup);
  // Without a GPU and a list of hosts, accelerate starts one process, whatever --num_processes says, and sets a port
  // only if several were asked for.
  result.unstarted_by_accelerate = lookup("ACCELERATE_MIXED_PRECISION") != nullptr &&
                                   lookup("MASTER_ADDR") != nullptr && lookup("MASTER_PORT") != nullptr;
  return result;
}
}  // namespace

int parse_number(const char* name, std::string_view text, int lowest, int highest) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < lowest || value > highest) {
    throw UsageError(
        fmt::format("environment variable {}='{}' is not a whole number from {} to {}; a launcher sets "
                    "it, so unset it or start the ranks with --devices",
                    name, text, lowest, highest));
  }
  return value;
}

int optional_number(const EnvironmentLookup& lookup, const char* name, int otherwise, int lowest, int highest) {
  const char* text = lookup(name);
  return text == nullptr ? otherwise : parse_number(name, text, lowest, highest);
}

const char* required_text(const EnvironmentLookup& lookup, const char* name, const char* because_of) {
  const char* text = lookup(name);
  if (text == nullptr)
    throw UsageError(
        fmt::format("environment variable {} is not set though {} is; a launcher sets both, so unset {} "
                    "or start the ranks with --devices",
                    name, because_of, because_of));
  return text;
}

int required_number(const EnvironmentLookup& lookup, const char* name, const char* because_of, int lowest,
                    int highest) {
  return parse_number(name, required_text(lookup, name, because_of), lowest, highest);
}

void refuse_contradiction(bool holds, const char* name, int64_t value, const char* rule, const char* other,
                          int64_t other_value) {
  if (holds) return;
  throw UsageError(fmt::format("environment variables contradict each other: {}={} must be {} {}={}", name, value, rule,
                               other, other_value));
}

bool read_ranks(const EnvironmentLookup& lookup, const RankNames& names, RankEnvironment& result) {
  const char* set_variable = nullptr;
  for (const char* name : {names.local_world_size, names.local_rank, names.world_size, names.rank})
    if (lookup(name) != nullptr) set_variable = name;
  if (set_variable == nullptr) return false;

  const auto required = [&](const char* name, int lowest) {
    const char* text = lookup(name);
    if (text == nullptr) {
      throw UsageError(fmt::format(
          "environment variable {} is not set though {} is; set {}, {}, {} and {} together, or none of them", name,
          set_variable, names.rank, names.world_size, names.local_rank, names.local_world_size));
    }
    return parse_number(name, text, lowest, kMaxRanks);
  };
  result.launched = true;
  result.world_size = required(names.world_size, 1);
  result.global_rank = required(names.rank, 0);
  result.local_world_size = required(names.local_world_size, 1);
  result.local_rank = required(names.local_rank, 0);
  refuse_contradiction(result.global_rank < result.world_size, names.rank, result.global_rank, "less than",
                       names.world_size, result.world_size);
  refuse_contradiction(result.local_world_size <= result.world_size, names.local_world_size, result.local_world_size,
                       "at most", names.world_size, result.world_size);
  refuse_contradiction(result.local_rank < result.local_world_size, names.local_rank, result.local_rank, "less than",
                       names.local_world_size, result.local_world_size);
  refuse_contradiction(result.local_rank <= result.global_rank, names.local_rank, result.local_rank, "at most",
                       names.rank, result.global_rank);
  return true;
}

RankEnvironment parse_rank_environment(const EnvironmentLookup& lookup) {
  RankEnvironment result = read_launcher(lookup);
  if (!result.launched) return result;
  const bool is_common = lookup(kCommonNames.rank) != nullptr;
  if (result.launcher != "srun") {
    const char* node_variable = lookup("GROUP_RANK") != nullptr ? "GROUP_RANK" : "NODE_RANK";
    result.node_rank = optional_number(lookup, node_variable, 0, 0, kMaxRanks);
    result.num_nodes = (result.world_size + result.local_world_size - 1) / result.local_world_size;
  }
  const char* restarts =
      lookup("TRIREME_RESTART_COUNT") != nullptr ? "TRIREME_RESTART_COUNT" : "TORCHELASTIC_RESTART_COUNT";
  result.restart_count = optional_number(lookup, restarts, 0, 0, kMaxRanks);

  if (const char* run = lookup("TRIREME_RUN")) result.run = run;

  const char* address = lookup("MASTER_ADDR");
  const char* port = lookup("MASTER_PORT");
  if (result.world_size > 1 && is_common && (address == nullptr || *address == '\0' || port == nullptr)) {
    throw UsageError(
        fmt::format("environment variable {} is {} though WORLD_SIZE={}; it names the host{} where rank 0 "
                    "waits for the others",
                    address == nullptr || *address == '\0' ? "MASTER_ADDR" : "MASTER_PORT",
                    address != nullptr && *address == '\0' ? "empty" : "not set", result.world_size,
                    address == nullptr || *address == '\0' ? "" : "'s port"));
  }
  if (address != nullptr && is_common && result.local_world_size != result.world_size)
    refuse_ipv6(fmt::format("environment variable MASTER_ADDR={}", address), address);
  if (address != nullptr) result.master_address = address;
  if (port != nullptr) result.master_port = parse_number("MASTER_PORT", port, 1, 65535);

  const char* torchrun_id = lookup("TORCHELASTIC_RUN_ID");
  result.port_is_taken = torchrun_id != nullptr && says_true(lookup("TORCHELASTIC_USE_AGENT_STORE"));
  if (const char* id = lookup("TRIREME_JOB_ID"))
    result.job_id = id;
  else if (torchrun_id != nullptr)
    result.job_id = torchrun_id;

  result.token_fd = optional_number(lookup, "TRIREME_TOKEN_FD", -1, 3, 1 << 30);
  if (lookup("TRIREME_STORE_FD") != nullptr) {
    result.store_fd = optional_number(lookup, "TRIREME_STORE_FD", -1, 3, 1 << 30);
    if (result.global_rank != 0) {
      throw UsageError(
          fmt::format("environment variables contradict each other: TRIREME_STORE_FD={} belongs to rank 0, "
                      "but RANK={}",
                      result.store_fd, result.global_rank));
    }
    if (result.port_is_taken) {
      throw UsageError(
          fmt::format("environment variables contradict each other: TRIREME_STORE_FD={} asks rank 0 to "
                      "host the store, TORCHELASTIC_USE_AGENT_STORE says that torchrun does",
                      result.store_fd));
    }
  }
  return result;
}

bool was_launched() {
  for (const char* word : {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PALS_RANKID", "SLURM_PROCID", "FLUX_TASK_RANK"})
    if (std::getenv(word) != nullptr) return true;
  return false;
}

RankEnvironment rank_environment() {
  RankEnvironment result = parse_rank_environment([](const char* name) { return std::getenv(name); });
  if (result.token_fd >= 0) {
    result.token = store::token_from_descriptor(result.token_fd);
    fcntl(result.token_fd, F_SETFD, FD_CLOEXEC);
  }
  if (result.store_fd >= 0) {
    int listening = 0;
    socklen_t size = sizeof listening;
    if (getsockopt(result.store_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) {
      throw UsageError(
          fmt::format("environment variable TRIREME_STORE_FD={} is not a listening socket of this process; "
                      "unset it, or start the ranks with --devices",
                      result.store_fd));
    }
    fcntl(result.store_fd, F_SETFD, FD_CLOEXEC);
  }
  return result;
}

}  // namespace trireme::launch
