// Settings for starting ranks, on this machine and on others.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"

namespace trireme::launch {

/// Job files that can be printed (job_file.h).
enum class JobKind { sbatch, k8s, hostfile };
std::span<const config::Choice<JobKind>> choices_of(JobKind);

/// What happens if ranks run on different hardware or libraries (train/alike.h).
enum class Homogeneous { require, warn, ignore };
std::span<const config::Choice<Homogeneous>> choices_of(Homogeneous);

struct RankSettings {
  std::optional<int64_t> devices;
  int64_t num_nodes = 1;
  bool operator==(const RankSettings&) const = default;
};
config::Section section(RankSettings& settings);

/// Of a rank; OMP_NUM_THREADS has this bound, too.
inline constexpr int kMostThreads = 1024;

struct LaunchSettings {
  std::optional<int64_t> threads_per_rank;
  bool pin = true;
  bool oversubscribe = false;
  Homogeneous homogeneous = Homogeneous::warn;
  std::optional<int64_t> node_rank;
  std::optional<std::string> master_addr;
  int64_t master_port = 29500;
  int64_t max_restarts = 0;
  std::optional<std::string> nnodes;         ///< "2:4": machines come and go
  std::optional<std::string> rdzv_endpoint;  ///< "host:port": where their launchers meet
  std::chrono::milliseconds join_timeout{600'000};
  std::chrono::milliseconds last_call{10'000};
  std::optional<std::string> token_file;
  std::chrono::milliseconds grace{30'000};
  std::optional<std::string> notice_file;
  std::optional<std::string> notice_url;
  std::chrono::milliseconds notice_interval{5'000};
  std::optional<std::vector<int64_t>> log_ranks;
  std::optional<std::string> log_link;  ///< in out_dir, to the log of rank 0
  std::optional<std::vector<std::string>> hosts;  ///< each "NAME" or "NAME:RANKS"
  std::optional<std::string> hostfile;
  std::optional<std::string> include, exclude;  ///< of these machines (machines/host_filter.h)
  std::optional<JobKind> print;
  std::optional<std::string> image;
  std::optional<std::string> volume;
  bool operator==(const LaunchSettings&) const = default;
};
config::Section section(LaunchSettings& settings);

/// devices x num_nodes; devices counts as 1 if it is not set.
int64_t world_size(const RankSettings& settings);

}  // namespace trireme::launch
