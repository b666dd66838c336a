// Which cores belong to which local rank: whole cores, neighbours together, never two ranks on one core.
//
// Ranks that wander between cores lose their caches and, with spinning collectives, each other's time. The cores
// counted are those this process may use (affinity mask, cpuset), and a CPU quota (containers) bounds the threads.
#pragma once

#include <string>
#include <vector>

namespace trireme::launch {

struct CoreShare {
  int num_cores = 1;         ///< whole cores that this process may use
  int threads_per_rank = 1;  ///< cores (or the quota, if less) / ranks, at least 1
  std::vector<std::vector<int>> cpus_of_rank;  ///< logical CPUs of each rank; empty when ranks exceed cores
};

/// Deals `cores` (each a list of logical CPUs, in topological order) to `num_ranks` in contiguous runs whose
/// lengths differ by at most one; empty when there are more ranks than cores.
std::vector<std::vector<int>> deal_cores(const std::vector<std::vector<int>>& cores, int num_ranks);

/// The share of each of `num_ranks` local ranks of the cores this process may use now.
CoreShare share_cores(int num_ranks);

/// NUMA nodes whose cores this process may use, at least 1: how many ranks a machine gets when nobody says. The threads
/// of a rank share memory and caches, and threads of one node compute as fast as as many ranks would with one copy of
/// everything; across nodes they would read each other's memory.
int num_numa_nodes();

}  // namespace trireme::launch
