#include "trireme/launch/environment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

constexpr int kMaxRanks = 1 << 20;

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

int required_number(const EnvironmentLookup& lookup, const char* name, const char* because, int lowest, int highest) {
  const char* text = lookup(name);
  if (text == nullptr) {
    throw UsageError(
        fmt::format("environment variable {} is not set though {} is; set RANK, WORLD_SIZE, LOCAL_RANK "
                    "and LOCAL_WORLD_SIZE together, or none of them",
                    name, because));
  }
  return parse_number(name, text, lowest, highest);
}

int optional_number(const EnvironmentLookup& lookup, const char* name, int otherwise, int lowest, int highest) {
  const char* text = lookup(name);
  return text == nullptr ? otherwise : parse_number(name, text, lowest, highest);
}

void refuse_contradiction(bool holds, const char* name, int value, const char* rule, const char* other,
                          int other_value) {
  if (!holds) {
    throw UsageError(fmt::format("environment variables contradict each other: {}={} must be {} {}={}", name, value,
                                 rule, other, other_value));
  }
}

bool says_true(const char* text) {
  const std::string_view value = text == nullptr ? "" : text;
  return value == "True" || value == "true" || value == "1";
}

}  // namespace

RankEnvironment parse_rank_environment(const EnvironmentLookup& lookup) {
  RankEnvironment result;
  const char* set_variable = nullptr;
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    if (lookup(name) != nullptr) {
      set_variable = name;
      break;
    }
  }
  if (set_variable == nullptr) return result;

  result.launched = true;
  result.world_size = required_number(lookup, "WORLD_SIZE", set_variable, 1, kMaxRanks);
  result.global_rank = required_number(lookup, "RANK", set_variable, 0, kMaxRanks);
  result.local_world_size = required_number(lookup, "LOCAL_WORLD_SIZE", set_variable, 1, kMaxRanks);
  result.local_rank = required_number(lookup, "LOCAL_RANK", set_variable, 0, kMaxRanks);
  const char* node_variable = lookup("GROUP_RANK") != nullptr ? "GROUP_RANK" : "NODE_RANK";
  result.node_rank = optional_number(lookup, node_variable, 0, 0, kMaxRanks);
  result.restart_count = optional_number(lookup, "TORCHELASTIC_RESTART_COUNT", 0, 0, kMaxRanks);

  refuse_contradiction(result.global_rank < result.world_size, "RANK", result.global_rank, "less than", "WORLD_SIZE",
                       result.world_size);
  refuse_contradiction(result.local_world_size <= result.world_size, "LOCAL_WORLD_SIZE", result.local_world_size,
                       "at most", "WORLD_SIZE", result.world_size);
  refuse_contradiction(result.local_rank < result.local_world_size, "LOCAL_RANK", result.local_rank, "less than",
                       "LOCAL_WORLD_SIZE", result.local_world_size);
  refuse_contradiction(result.local_rank <= result.global_rank, "LOCAL_RANK", result.local_rank, "at most", "RANK",
                       result.global_rank);

  const char* address = lookup("MASTER_ADDR");
  const char* port = lookup("MASTER_PORT");
  if (result.world_size > 1 && (address == nullptr || *address == '\0' || port == nullptr)) {
    throw UsageError(
        fmt::format("environment variable {} is {} though WORLD_SIZE={}; it names the host{} where rank 0 "
                    "waits for the others",
                    address == nullptr || *address == '\0' ? "MASTER_ADDR" : "MASTER_PORT",
                    address != nullptr && *address == '\0' ? "empty" : "not set", result.world_size,
                    address == nullptr || *address == '\0' ? "" : "'s port"));
  }
  if (address != nullptr) result.master_address = address;
  if (port != nullptr) result.master_port = parse_number("MASTER_PORT", port, 1, 65535);

  const char* torchrun_id = lookup("TORCHELASTIC_RUN_ID");
  result.store_is_hosted = torchrun_id != nullptr && says_true(lookup("TORCHELASTIC_USE_AGENT_STORE"));
  if (const char* id = lookup("TRIREME_JOB_ID")) {
    result.job_id = id;
  } else if (torchrun_id != nullptr) {
    result.job_id = torchrun_id;
  }

  if (lookup("TRIREME_STORE_FD") != nullptr) {
    result.store_fd = optional_number(lookup, "TRIREME_STORE_FD", -1, 3, 1 << 30);
    if (result.global_rank != 0) {
      throw UsageError(
          fmt::format("environment variables contradict each other: TRIREME_STORE_FD={} belongs to rank 0, "
                      "but RANK={}",
                      result.store_fd, result.global_rank));
    }
    if (result.store_is_hosted) {
      throw UsageError(
          fmt::format("environment variables contradict each other: TRIREME_STORE_FD={} asks rank 0 to "
                      "host the store, TORCHELASTIC_USE_AGENT_STORE says that torchrun does",
                      result.store_fd));
    }
  }
  return result;
}

RankEnvironment rank_environment() {
  RankEnvironment result = parse_rank_environment([](const char* name) { return std::getenv(name); });
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
