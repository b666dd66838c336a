// What each launcher leaves in a rank's environment, and what is made of it: a row a case.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/launch/identity/launchers.h"

namespace trireme::launch {
namespace {

struct Case {
  const char* name;
  const char* variables;  // "NAME=value NAME=value"
  // "launcher rank/world local/local world, node/nodes [hosts]", or what the refusal says
  const char* result;
};

EnvironmentLookup lookup_of(const std::string& words) {
  std::map<std::string, std::string> variables;
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size()), equals = words.find('=', at);
    variables[words.substr(at, equals - at)] = words.substr(equals + 1, end - equals - 1);
    at = end + 1;
  }
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

std::string outcome_of(const std::string& words) {
  try {
    const RankEnvironment e = parse_rank_environment(lookup_of(words));
    if (e.unstarted_by_accelerate) return "alone, though accelerate was asked for several";
    if (!e.launched) return fmt::format("alone, {} tasks of Slurm's not started", e.unstarted_tasks);
    return fmt::format("{} {}/{} {}/{}, {}/{} [{}]", e.launcher, e.global_rank, e.world_size, e.local_rank,
                       e.local_world_size, e.node_rank, e.num_nodes, base::join(e.hosts, " "));
  } catch (const UsageError& error) {
    return error.what();
  }
}

constexpr Case kCases[] = {
    {"nothing", "HOME=/root", "alone, 0 tasks of Slurm's not started"},
    {"an address without ranks", "MASTER_ADDR=h MASTER_PORT=1", "alone, 0 tasks of Slurm's not started"},
    // torchrun and those who speak its words
    {"torchrun, one host",
     "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=localhost MASTER_PORT=29500 "
     "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_USE_AGENT_STORE=True",
     "torchrun 1/2 1/2, 0/1 []"},
    {"torchrun, second of two hosts",
     "RANK=6 WORLD_SIZE=8 LOCAL_RANK=2 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 MASTER_ADDR=n1 MASTER_PORT=29400 "
     "TORCHELASTIC_RUN_ID=7",
     "torchrun 6/8 2/4, 1/2 []"},
    {"accelerate launch",
     "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "
     "TORCHELASTIC_RUN_ID=none ACCELERATE_MIXED_PRECISION=no ACCELERATE_USE_CPU=true",
     "accelerate launch 0/2 0/2, 0/1 []"},
    {"accelerate launch through mpirun",
     "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 "
     "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ACCELERATE_MIXED_PRECISION=no ACCELERATE_USE_CPU=True",
     "mpirun 1/2 1/2, 0/1 []"},
    {"accelerate launch of one of two processes",
     "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ACCELERATE_MIXED_PRECISION=no ACCELERATE_USE_CPU=True",
     "alone, though accelerate was asked for several"},
    {"accelerate launch of one process", "ACCELERATE_MIXED_PRECISION=no ACCELERATE_USE_CPU=True",
     "alone, 0 tasks of Slurm's not started"},
    {"a shell script",
     "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 NODE_RANK=1 MASTER_ADDR=n1 MASTER_PORT=1234",
     "the launcher 3/4 1/2, 1/2 []"},
    {"DeepSpeed's launcher",
     "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_SIZE=2 CROSS_RANK=0 CROSS_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500",
     "the launcher 1/2 1/2, 0/1 []"},
    {"srun's script that exports a local rank, a host alone",
     "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 RANK=3 WORLD_SIZE=4 LOCAL_RANK=3 "
     "MASTER_ADDR=localhost MASTER_PORT=29500",
     "the launcher 3/4 3/4, 0/1 []"},
    {"a local rank that is not the rank on a host alone",
     "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=localhost MASTER_PORT=29500",
     "LOCAL_RANK=1 and RANK=3, but with MASTER_ADDR=localhost all ranks are on this host"},
    {"a local rank alone", "LOCAL_RANK=1", "environment variable WORLD_SIZE is not set though LOCAL_RANK is"},
    {"our own launcher",
     "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1 TRIREME_JOB_ID=a",
     "trireme 0/2 0/2, 0/1 []"},
    {"torchrun on srun's nodes",
     "SLURM_JOB_ID=1 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 "
     "LOCAL_WORLD_SIZE=4 GROUP_RANK=1 MASTER_ADDR=n1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=1",
     "torchrun 5/8 1/4, 1/2 []"},
    {"WORLD_SIZE missing", "RANK=0",
     "environment variable WORLD_SIZE is not set though RANK is; set RANK and WORLD_SIZE, with MASTER_ADDR and "
     "MASTER_PORT, for each rank, or none of them"},
    {"RANK missing", "WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1",
     "environment variable RANK is not set though WORLD_SIZE is; set RANK and WORLD_SIZE, with MASTER_ADDR"},
    {"no meeting place", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2",
     "environment variable MASTER_ADDR is not set though WORLD_SIZE=2"},
    {"a rank outside of its world", "RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=1",
     "environment variables contradict each other: RANK=2 must be less than WORLD_SIZE=2"},
    {"a leftover world of one under mpirun",
     "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4",
     "OMPI_COMM_WORLD_SIZE=4 must be at most WORLD_SIZE=1"},
    {"a leftover world of one under srun",
     "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 SLURM_PROCID=2 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4",
     "SLURM_STEP_NUM_TASKS=4 must be at most WORLD_SIZE=1"},
    // the MPIs
    {"Open MPI, one host",
     "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4 "
     "OMPI_COMM_WORLD_NODE_RANK=1 PMIX_RANK=1 PMIX_NAMESPACE=77",
     "mpirun 1/4 1/4, 0/1 []"},
    {"Open MPI, four hosts",
     "OMPI_COMM_WORLD_RANK=9 OMPI_COMM_WORLD_SIZE=16 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=4",
     "mpirun 9/16 1/4, 0/4 []"},
    {"Open MPI without its size", "OMPI_COMM_WORLD_RANK=1",
     "environment variable OMPI_COMM_WORLD_SIZE is not set though OMPI_COMM_WORLD_RANK is"},
    {"Open MPI inside of a Slurm job",
     "SLURM_JOB_ID=1 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_STEP_ID=0 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=8 "
     "OMPI_COMM_WORLD_LOCAL_RANK=3 OMPI_COMM_WORLD_LOCAL_SIZE=4",
     "mpirun 3/8 3/4, 0/2 []"},
    {"MPICH", "PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 PMI_FD=5", "MPICH's mpirun 3/4 1/2, 0/2 []"},
    {"MPICH, a rank too many", "PMI_RANK=4 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2",
     "PMI_RANK=4 must be less than PMI_SIZE=4"},
    {"Intel MPI", "I_MPI_MPIRUN=mpirun PMI_RANK=0 PMI_SIZE=2 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2",
     "Intel MPI's mpirun 0/2 0/2, 0/1 []"},
    {"MVAPICH",
     "MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_LOCAL_RANK=0 MV2_COMM_WORLD_LOCAL_SIZE=1 MPIRUN_ID=4",
     "MVAPICH's mpirun 1/2 0/1, 0/2 []"},
    {"PALS",
     "PALS_RANKID=13 PMI_RANK=13 PMI_SIZE=24 PALS_LOCAL_RANKID=1 PALS_LOCAL_SIZE=12 PALS_NODEID=1 PALS_APID=ab-cd",
     "PALS' mpiexec 13/24 1/12, 0/2 []"},
    {"PALS without its local size", "PALS_RANKID=1 PMI_SIZE=2 PALS_LOCAL_RANKID=1",
     "environment variable PALS_LOCAL_SIZE is not set though PALS_RANKID is"},
    {"bare PMI", "PMI_RANK=1 PMI_SIZE=4", "environment variable PMI_RANK=1 says that a launcher started this process"},
    {"bare PMI, a world of one", "PMI_RANK=0 PMI_SIZE=1", "alone, 0 tasks of Slurm's not started"},
    {"bare PMIx", "PMIX_RANK=2 PMIX_NAMESPACE=a", "environment variable PMIX_RANK=2 says that a launcher"},
    // Flux
    {"flux", "FLUX_TASK_RANK=5 FLUX_JOB_SIZE=8 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=2 FLUX_JOB_ID=f1",
     "flux 5/8 1/4, 0/2 []"},
    {"flux, uneven", "FLUX_TASK_RANK=5 FLUX_JOB_SIZE=7 FLUX_TASK_LOCAL_ID=1 FLUX_JOB_NNODES=2",
     "FLUX_JOB_SIZE=7 must be a multiple of FLUX_JOB_NNODES=2"},
    {"flux without its size", "FLUX_TASK_RANK=5",
     "environment variable FLUX_JOB_SIZE is not set though FLUX_TASK_RANK is"},
    // Slurm
    {"srun, one node",
     "SLURM_JOB_ID=9 SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_LOCALID=2 SLURM_NODEID=0 SLURM_NTASKS=4 "
     "SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=4 SLURM_STEP_NODELIST=vm",
     "srun 2/4 2/4, 0/1 [vm]"},
    {"srun, a bracketed list",
     "SLURM_JOB_ID=9 SLURM_STEP_ID=1 SLURM_PROCID=7 SLURM_LOCALID=1 SLURM_NODEID=3 SLURM_NTASKS=8 "
     "SLURM_STEP_NUM_TASKS=8 SLURM_STEP_TASKS_PER_NODE=2(x4) SLURM_STEP_NODELIST=node[08-10,20]",
     "srun 7/8 1/2, 3/4 [node08 node09 node10 node20]"},
    {"srun, two brackets",
     "SLURM_JOB_ID=9 SLURM_STEP_ID=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_NTASKS=4 "
     "SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE=1(x4) SLURM_STEP_NODELIST=r[1-2]c[0,7]",
     "srun 0/4 0/1, 0/4 [r1c0 r1c7 r2c0 r2c7]"},
    {"srun, uneven",
     "SLURM_JOB_ID=9 SLURM_STEP_ID=1 SLURM_PROCID=6 SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_NTASKS=7 "
     "SLURM_STEP_NUM_TASKS=7 SLURM_STEP_TASKS_PER_NODE=3(x2),1 SLURM_STEP_NODELIST=a,b[1-2]",
     "srun 6/7 0/1, 2/3 [a b1 b2]"},
    {"srun with PMIx",
     "SLURM_JOB_ID=9 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_NTASKS=2 "
     "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_NODELIST=vm PMIX_RANK=1",
     "srun 1/2 1/2, 0/1 [vm]"},
    {"srun with PMI-2",
     "SLURM_JOB_ID=9 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_NTASKS=2 "
     "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=2 SLURM_STEP_NODELIST=vm PMI_RANK=1 PMI_SIZE=2",
     "srun 1/2 1/2, 0/1 [vm]"},
    {"srun, fewer hosts than nodes",
     "SLURM_JOB_ID=9 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NTASKS=2 "
     "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_STEP_NODELIST=vm",
     "SLURM_STEP_NODELIST=1 must be as many hosts as SLURM_STEP_TASKS_PER_NODE=2"},
    {"srun, a list that does not close",
     "SLURM_JOB_ID=9 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NTASKS=2 "
     "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_STEP_NODELIST=n[1-2",
     "SLURM_STEP_NODELIST='n[1-2' is not a list of hosts"},
    {"srun, tasks that do not add up",
     "SLURM_JOB_ID=9 SLURM_STEP_ID=1 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NTASKS=3 "
     "SLURM_STEP_NUM_TASKS=3 SLURM_STEP_TASKS_PER_NODE=1(x2) SLURM_STEP_NODELIST=n[1-2]",
     "SLURM_STEP_NUM_TASKS=3 must be the sum of SLURM_STEP_TASKS_PER_NODE=2"},
    {"a batch script that forgot srun", "SLURM_JOB_ID=9 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_NODELIST=n[1-2]",
     "alone, 8 tasks of Slurm's not started"},
    {"a batch script's own step", "SLURM_JOB_ID=9 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_STEP_ID=4294967291",
     "alone, 8 tasks of Slurm's not started"},
    {"an interactive shell of one task", "SLURM_JOB_ID=9 SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_STEP_ID=4294967290",
     "alone, 0 tasks of Slurm's not started"},
};

class EnvironmentTable : public ::testing::TestWithParam<Case> {};

TEST_P(EnvironmentTable, IsReadAsTheRowSays) {
  const std::string result = outcome_of(GetParam().variables);
  EXPECT_THAT(result, ::testing::HasSubstr(GetParam().result)) << GetParam().name;
}

INSTANTIATE_TEST_SUITE_P(Launchers, EnvironmentTable, ::testing::ValuesIn(kCases), [](const auto& info) {
  std::string name;
  for (const char* c = info.param.name; *c != '\0'; ++c) name += std::isalnum(*c) ? *c : '_';
  return name;
});

TEST(Kubernetes, PodsNumberThemselves) {
  EXPECT_EQ(pod_index(lookup_of("HOSTNAME=a")), std::nullopt);
  EXPECT_EQ(pod_index(lookup_of("JOB_COMPLETION_INDEX=3")), 3);
  EXPECT_THROW(pod_index(lookup_of("JOB_COMPLETION_INDEX=three")), UsageError);
}

TEST(Kubernetes, PodZeroIsReachedThroughTheHeadlessService) {
  EXPECT_EQ(first_pod("train-3.ranks.lab.svc.cluster.local", 3), "train-0.ranks.lab.svc.cluster.local");
  EXPECT_EQ(first_pod("my-job-12.ranks", 12), "my-job-0.ranks");
  EXPECT_EQ(first_pod("train-0.ranks", 0), "train-0.ranks");
  EXPECT_EQ(first_pod("train-3", 3), "") << "no service";
  EXPECT_EQ(first_pod("train-3.", 3), "");
  EXPECT_EQ(first_pod("train-13.ranks", 3), "") << "another number";
  EXPECT_EQ(first_pod("-3.ranks", 3), "");
  EXPECT_EQ(first_pod("somewhere.ranks", 3), "");
}

}  // namespace
}  // namespace trireme::launch
