// Divides a machine's cores among its local ranks. Each rank gets whole cores, next to each other, for itself alone.
//
// Ranks that move between cores lose their caches, and with spinning collectives they take time from each other. Only
// cores that this process may use count (affinity mask, cpuset). A container's CPU quota limits the threads.
#pragma once

#include <optional>
#include <vector>

namespace trireme::launch {

struct CoreShare {
  int num_cores = 1;  ///< whole cores that this process may use
  int threads_per_rank = 1;  ///< num_cores (or the quota, if less) / ranks, at least 1
  std::vector<std::vector<int>> cpus_of_rank;  ///< logical CPUs of each rank; empty if there are more ranks than cores
};

/// Divides `cores` (each a list of logical CPUs, in topological order) among `num_ranks`. Each rank gets a contiguous
/// run; lengths differ by at most one. Empty if there are more ranks than cores.
std::vector<std::vector<int>> deal_cores(const std::vector<std::vector<int>>& cores, int num_ranks);

/// The share that each of `num_ranks` local ranks has of the cores that this process may use now.
CoreShare share_cores(int num_ranks);

/// The threads that `value`, of OMP_NUM_THREADS, gives a rank: of "4,2", for nested regions, the first number. Nothing:
/// the variable is not set, or empty.
/// Errors    UsageError: no number of threads that launch.threads_per_rank could be
std::optional<int> threads_of_variable(const char* value);

/// The number of NUMA nodes whose cores this process may use, at least 1: the default number of ranks on a machine.
/// Within a node, one rank with many threads is as fast as several ranks, and needs one copy of everything. Across
/// nodes, its threads would read remote memory.
int num_numa_nodes();

}  // namespace trireme::launch
