#include "trireme/launch/identity/core_share.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using Cores = std::vector<std::vector<int>>;

TEST(CoreShare, CoresAreDealtWholeInContiguousRuns) {
  const Cores cores = {{0, 4}, {1, 5}, {2, 6}, {3, 7}};
  EXPECT_EQ(deal_cores(cores, 1), (Cores{{0, 4, 1, 5, 2, 6, 3, 7}}));
  EXPECT_EQ(deal_cores(cores, 2), (Cores{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(deal_cores(cores, 4), (Cores{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

TEST(CoreShare, AnUnevenDealDiffersByOneCoreAtMostAndUsesEachOnce) {
  for (int num_cores = 1; num_cores <= 17; ++num_cores) {
    Cores cores;
    for (int core = 0; core < num_cores; ++core) cores.push_back({core});
    for (int ranks = 1; ranks <= num_cores; ++ranks) {
      std::set<int> used;
      std::size_t total = 0;
      for (const auto& cpus : deal_cores(cores, ranks)) {
        EXPECT_GE(cpus.size(), static_cast<std::size_t>(num_cores / ranks));
        EXPECT_LE(cpus.size(), static_cast<std::size_t>((num_cores + ranks - 1) / ranks));
        used.insert(cpus.begin(), cpus.end());
        total += cpus.size();
      }
      EXPECT_EQ(used.size(), total);
      EXPECT_EQ(total, static_cast<std::size_t>(num_cores));
    }
  }
}

TEST(CoreShare, MoreRanksThanCoresGetNone) {
  EXPECT_TRUE(deal_cores({{0}, {1}}, 3).empty());
  EXPECT_TRUE(deal_cores({}, 1).empty());
  const auto share = share_cores(4096);
  EXPECT_EQ(share.threads_per_rank, 1);
  EXPECT_TRUE(share.cpus_of_rank.empty());
}

TEST(CoreShare, TheVariableForThreadsIsReadAsOpenMpDoesAndHasTheSettingsBounds) {
  EXPECT_EQ(threads_of_variable(nullptr), std::nullopt);
  EXPECT_EQ(threads_of_variable(""), std::nullopt);
  EXPECT_EQ(threads_of_variable("4"), 4);
  EXPECT_EQ(threads_of_variable("4,2"), 4);
  EXPECT_EQ(threads_of_variable("1024"), 1024);
  for (const char* wrong : {"0", "-1", "1025", "99999999999", "many", "4x", ",2"}) try {
      threads_of_variable(wrong);
      ADD_FAILURE() << wrong;
    } catch (const UsageError& error) {
      EXPECT_EQ(std::string(error.what()), std::string("OMP_NUM_THREADS is ") + wrong +
                                               ", and a rank computes with 1 to 1,024 threads; correct the variable, "
                                               "or say --launch.threads_per_rank N");
    }
}

// hwloc takes a machine's description from the environment, and reads the next topology from it.
int nodes_of(const char* description) {
  setenv("HWLOC_SYNTHETIC", description, 1);
  const int nodes = num_numa_nodes();
  unsetenv("HWLOC_SYNTHETIC");
  return nodes;
}

TEST(CoreShare, NumaNodesAreThoseOfTheMachine) {
  EXPECT_EQ(nodes_of("NUMANode:1 Core:4 PU:2"), 1);
  EXPECT_EQ(nodes_of("Package:2 NUMANode:2 Core:8 PU:1"), 4);
  EXPECT_GE(num_numa_nodes(), 1);
}

}  // namespace
}  // namespace trireme::launch
