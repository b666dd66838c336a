#include "trireme/launch/identity/core_share.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "trireme/base/cgroup.h"
#include "trireme/base/error.h"
#include "trireme/base/parse_whole.h"
#include "trireme/base/text.h"
#include "trireme/launch/settings.h"

namespace trireme::launch {
namespace {
using Topology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

std::vector<int> cpus_in_both(hwloc_const_bitmap_t a, hwloc_const_bitmap_t b) {
  std::vector<int> cpus;
  for (int cpu = hwloc_bitmap_first(a); cpu >= 0; cpu = hwloc_bitmap_next(a, cpu))
    if (hwloc_bitmap_isset(b, static_cast<unsigned>(cpu))) cpus.push_back(cpu);
  return cpus;
}

Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return {nullptr, &hwloc_topology_destroy};
  Topology topology(raw, &hwloc_topology_destroy);
  if (hwloc_topology_load(raw) != 0) topology.reset();
  return topology;
}

// The logical CPUs that this thread may use; null when they cannot be had.
Bitmap allowed_cpus(hwloc_topology_t topology) {
  Bitmap allowed(hwloc_bitmap_alloc(), &hwloc_bitmap_free);
  if (hwloc_get_cpubind(topology, allowed.get(), HWLOC_CPUBIND_THREAD) != 0) allowed.reset();
  return allowed;
}

// The usable logical CPUs, core by core, in the order of the topology (package, NUMA node, cache).
std::vector<std::vector<int>> usable_cores() {
  std::vector<std::vector<int>> cores;
  const Topology topology = load_topology();
  if (!topology) return cores;
  hwloc_topology_t raw = topology.get();
  const Bitmap allowed = allowed_cpus(raw);
  if (!allowed) return cores;
  // Some virtual machines show logical CPUs but no cores.
  const auto type = hwloc_get_nbobjs_by_type(raw, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  const int num_objects = hwloc_get_nbobjs_by_type(raw, type);
  for (int i = 0; i < num_objects; ++i) {
    auto cpus = cpus_in_both(hwloc_get_obj_by_type(raw, type, static_cast<unsigned>(i))->cpuset, allowed.get());
    if (!cpus.empty()) cores.push_back(std::move(cpus));
  }
  return cores;
}
}  // namespace

std::vector<std::vector<int>> deal_cores(const std::vector<std::vector<int>>& cores, int num_ranks) {
  if (num_ranks < 1 || num_ranks > std::ssize(cores)) return {};
  const auto ranks = static_cast<std::size_t>(num_ranks);
  std::vector<std::vector<int>> cpus_of_rank(ranks);
  for (std::size_t core = 0; core < cores.size(); ++core) {
    auto& cpus = cpus_of_rank[((core + 1) * ranks - 1) / cores.size()];
    cpus.insert(cpus.end(), cores[core].begin(), cores[core].end());
  }
  return cpus_of_rank;
}

int num_numa_nodes() {
  const Topology topology = load_topology();
  if (!topology) return 1;
  const Bitmap allowed = allowed_cpus(topology.get());
  if (!allowed) return 1;
  int nodes = 0;
  for (hwloc_obj_t node = nullptr; (node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node));)
    nodes += hwloc_bitmap_intersects(node->cpuset, allowed.get());  // a node without cores (memory only) gets no rank
  return std::max(1, nodes);
}

std::optional<int> threads_of_variable(const char* value) {
  const std::string_view given = value == nullptr ? "" : value;
  if (given.empty()) return std::nullopt;
  const auto threads = base::parse_whole<int>(given.substr(0, given.find(',')));
  if (threads && *threads >= 1 && *threads <= kMostThreads) return threads;
  throw UsageError(
      fmt::format("OMP_NUM_THREADS is {}, and a rank computes with 1 to {} threads; correct the variable, "
                  "or say --launch.threads_per_rank N",
                  base::shortened(given, 40), base::human_count(kMostThreads)));
}

CoreShare share_cores(int num_ranks) {
  CoreShare share;
  const auto cores = usable_cores();
  share.num_cores =
      cores.empty() ? static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))) : static_cast<int>(cores.size());
  share.cpus_of_rank = deal_cores(cores, num_ranks);
  int usable = share.num_cores;
  if (const auto quota = base::Cgroup::of_this_process().cpu_quota())
    usable = std::clamp(static_cast<int>(*quota + 0.5), 1, usable);
  share.threads_per_rank = std::max(1, usable / std::max(1, num_ranks));
  return share;
}

}  // namespace trireme::launch
