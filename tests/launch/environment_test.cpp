#include "trireme/launch/identity/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

RankEnvironment parse(const Variables& variables) {
  return parse_rank_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables good(Variables changes = {}) {
  Variables variables = {{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "10.0.0.1"},
                         {"MASTER_PORT", "29500"}};
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

std::string refusal(const Variables& variables) {
  try {
    parse(variables);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(Environment, NothingSetIsAWorldOfOne) {
  const auto alone = parse({{"MASTER_ADDR", "somewhere"}, {"OMP_NUM_THREADS", "4"}});
  EXPECT_EQ(alone.global_rank, 0);
  EXPECT_EQ(alone.world_size, 1);
  EXPECT_FALSE(alone.launched);
  EXPECT_FALSE(alone.hosts_store());
}

TEST(Environment, AllVariablesAreRead) {
  const auto rank = parse(good({{"GROUP_RANK", "1"}, {"TRIREME_JOB_ID", "abc"}}));
  EXPECT_EQ(rank.global_rank, 5);
  EXPECT_EQ(rank.world_size, 8);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.local_world_size, 4);
  EXPECT_EQ(rank.node_rank, 1);
  EXPECT_EQ(rank.master_address, "10.0.0.1");
  EXPECT_EQ(rank.master_port, 29500);
  EXPECT_EQ(rank.job_id, "abc");
  EXPECT_TRUE(rank.launched);
}

TEST(Environment, NumbersMustBeWholeAndInRange) {
  for (const char* text : {"", " 1", "1 ", "+1", "1.0", "0x1", "-1", "one", "99999999999"}) {
    EXPECT_THAT(refusal(good({{"RANK", text}})), HasSubstr("RANK='" + std::string(text) + "' is not a whole number"));
  }
  EXPECT_THAT(refusal(good({{"WORLD_SIZE", "0"}})), HasSubstr("WORLD_SIZE='0'"));
  EXPECT_THAT(refusal(good({{"MASTER_PORT", "65536"}})), HasSubstr("MASTER_PORT='65536'"));
  EXPECT_THAT(refusal(good({{"TRIREME_STORE_FD", "2"}, {"RANK", "0"}, {"LOCAL_RANK", "0"}})),
              HasSubstr("TRIREME_STORE_FD='2'"));
}

TEST(Environment, ContradictionsAreRefusedWithBothValues) {
  EXPECT_THAT(refusal(good({{"RANK", "8"}})), HasSubstr("RANK=8 must be less than WORLD_SIZE=8"));
  EXPECT_THAT(refusal(good({{"LOCAL_RANK", "4"}})), HasSubstr("LOCAL_RANK=4 must be less than LOCAL_WORLD_SIZE=4"));
  EXPECT_THAT(refusal(good({{"LOCAL_WORLD_SIZE", "9"}})), HasSubstr("LOCAL_WORLD_SIZE=9 must be at most WORLD_SIZE=8"));
  EXPECT_THAT(refusal(good({{"RANK", "0"}})), HasSubstr("LOCAL_RANK=1 must be at most RANK=0"));
  EXPECT_THAT(refusal(good({{"TRIREME_STORE_FD", "7"}})), AllOf(HasSubstr("TRIREME_STORE_FD=7"), HasSubstr("RANK=5")));
}

TEST(Environment, RankAndWorldSizeAreEnough) {
  Variables variables = good();
  variables.erase("LOCAL_RANK");
  variables.erase("LOCAL_WORLD_SIZE");
  const auto rank = parse(variables);
  EXPECT_TRUE(rank.launched);
  EXPECT_TRUE(rank.local_is_unknown);
  EXPECT_EQ(std::tuple(rank.global_rank, rank.world_size), std::tuple(5, 8));
  variables["MASTER_ADDR"] = "127.0.0.1";
  const auto local = parse(variables);
  EXPECT_FALSE(local.local_is_unknown);
  EXPECT_EQ(std::tuple(local.local_rank, local.local_world_size, local.num_nodes), std::tuple(5, 8, 1));
  variables["RANK"] = "8";
  EXPECT_THAT(refusal(variables), HasSubstr("RANK=8 must be less than WORLD_SIZE=8"));
}

TEST(Environment, ALocalRankWithoutItsWorldSizeIsTakenAndMustAgree) {
  Variables variables = good();
  variables.erase("LOCAL_WORLD_SIZE");
  const auto rank = parse(variables);
  EXPECT_TRUE(rank.launched);
  EXPECT_TRUE(rank.local_is_unknown);
  EXPECT_EQ(rank.said_local_rank, 1);
  EXPECT_EQ(std::tuple(rank.global_rank, rank.world_size), std::tuple(5, 8));
  variables["MASTER_ADDR"] = "127.0.0.1";
  EXPECT_THAT(refusal(variables), AllOf(HasSubstr("LOCAL_RANK=1 and RANK=5"), HasSubstr("MASTER_ADDR=127.0.0.1")));
  variables["LOCAL_RANK"] = "5";
  const auto local = parse(variables);
  EXPECT_FALSE(local.local_is_unknown);
  EXPECT_EQ(std::tuple(local.local_rank, local.local_world_size), std::tuple(5, 8));
  variables["LOCAL_RANK"] = "6";
  EXPECT_THAT(refusal(variables), HasSubstr("LOCAL_RANK=6 must be at most RANK=5"));
  variables["LOCAL_RANK"] = "one";
  EXPECT_THAT(refusal(variables), HasSubstr("LOCAL_RANK='one' is not a whole number"));
}

TEST(Environment, HalfAnEnvironmentIsRefused) {
  for (const char* missing : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    auto variables = good();
    variables.erase(missing);
    EXPECT_THAT(refusal(variables), AllOf(HasSubstr(missing), HasSubstr("not set"))) << missing;
  }
  EXPECT_THAT(refusal(good({{"MASTER_ADDR", ""}})), HasSubstr("MASTER_ADDR is empty"));
}

TEST(Environment, AnIpv6AddressIsRefusedWhereHostsMeet) {
  EXPECT_THAT(refusal(good({{"MASTER_ADDR", "fd00::1"}})),
              HasSubstr("environment variable MASTER_ADDR=fd00::1 is an IPv6 address; machines meet over IPv4"));
  EXPECT_EQ(parse(good({{"MASTER_ADDR", "::1"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "8"}, {"LOCAL_RANK", "5"}}))
                .world_size,
            8);
}

TEST(Environment, UnderTorchrunTheAgentsStoreHasThePort) {
  const Variables torchrun = {{"RANK", "0"},
                              {"LOCAL_RANK", "0"},
                              {"TORCHELASTIC_RUN_ID", "none"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                              {"TORCHELASTIC_RESTART_COUNT", "2"}};
  const auto rank = parse(good(torchrun));
  EXPECT_TRUE(rank.port_is_taken);
  EXPECT_EQ(rank.restart_count, 2);
  EXPECT_EQ(rank.job_id, "none");

  auto static_rendezvous = torchrun;
  static_rendezvous["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  EXPECT_FALSE(parse(good(static_rendezvous)).port_is_taken);

  auto both = torchrun;
  both["TRIREME_STORE_FD"] = "5";
  EXPECT_THAT(refusal(good(both)), HasSubstr("TORCHELASTIC_USE_AGENT_STORE"));
}

Variables under_mpirun(Variables changes = {}) {
  Variables variables = {{"OMPI_COMM_WORLD_RANK", "5"},
                         {"OMPI_COMM_WORLD_SIZE", "8"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

TEST(Environment, MpirunsRanksAreRecognisedAndNeedNoAddress) {
  const auto rank = parse(under_mpirun());
  EXPECT_EQ(rank.global_rank, 5);
  EXPECT_EQ(rank.world_size, 8);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.local_world_size, 4);
  EXPECT_TRUE(rank.launched);
  EXPECT_TRUE(rank.by_mpirun);
  EXPECT_EQ(rank.master_address, "");
  EXPECT_FALSE(parse(good()).by_mpirun);

  // mpirun -x MASTER_ADDR=... -x MASTER_PORT=...: a place to meet for other backends.
  const auto placed = parse(under_mpirun({{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}}));
  EXPECT_EQ(placed.master_address, "10.0.0.1");
  EXPECT_EQ(placed.master_port, 29500);
}

TEST(Environment, OtherLaunchersVariablesCountBeforeMpiruns) {
  auto both = under_mpirun({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "x"}});
  both.merge(good());
  const auto rank = parse(both);
  EXPECT_EQ(rank.global_rank, 5);
  EXPECT_FALSE(rank.by_mpirun);
}

TEST(Environment, MpirunsVariablesAreReadAsStrictly) {
  EXPECT_THAT(refusal(under_mpirun({{"OMPI_COMM_WORLD_RANK", "8"}})),
              HasSubstr("OMPI_COMM_WORLD_RANK=8 must be less than OMPI_COMM_WORLD_SIZE=8"));
  EXPECT_THAT(refusal(under_mpirun({{"OMPI_COMM_WORLD_SIZE", "two"}})),
              HasSubstr("OMPI_COMM_WORLD_SIZE='two' is not a whole number"));
  auto half = under_mpirun();
  half.erase("OMPI_COMM_WORLD_LOCAL_SIZE");
  EXPECT_THAT(refusal(half),
              AllOf(HasSubstr("OMPI_COMM_WORLD_LOCAL_SIZE is not set"), HasSubstr("OMPI_COMM_WORLD_RANK is")));
}

Variables under_srun(Variables changes = {}) {
  Variables variables = {{"SLURM_JOB_ID", "12"},
                         {"SLURM_STEP_ID", "3"},
                         {"SLURM_PROCID", "5"},
                         {"SLURM_LOCALID", "1"},
                         {"SLURM_NODEID", "1"},
                         {"SLURM_NTASKS", "7"},
                         {"SLURM_STEP_NUM_TASKS", "7"},
                         {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                         {"SLURM_STEP_NODELIST", "n[07-08]"}};
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

TEST(Environment, SrunsTasksAreRecognised) {
  const auto rank = parse(under_srun());
  EXPECT_EQ(rank.launcher, "srun");
  EXPECT_EQ(rank.global_rank, 5);
  EXPECT_EQ(rank.world_size, 7);
  EXPECT_EQ(rank.local_rank, 1);
  EXPECT_EQ(rank.local_world_size, 3);
  EXPECT_EQ(rank.node_rank, 1);
  EXPECT_EQ(rank.num_nodes, 2);
  EXPECT_THAT(rank.hosts, ::testing::ElementsAre("n07", "n08"));
  EXPECT_EQ(rank.job_id, "slurm-12.3.0");
  EXPECT_TRUE(rank.has_no_token());
  EXPECT_FALSE(rank.by_mpirun);
  EXPECT_TRUE(parse(under_srun({{"PMIX_RANK", "5"}})).by_mpirun);
  EXPECT_EQ(parse(under_srun({{"SLURM_RESTART_COUNT", "2"}})).job_id, "slurm-12.3.2");
  EXPECT_EQ(parse(under_srun({{"MASTER_ADDR", "n07"}, {"MASTER_PORT", "29500"}})).master_port, 29500);
}

TEST(Environment, AnOlderSlurmNamesOnlyTheJob) {
  auto variables = under_srun({{"SLURM_TASKS_PER_NODE", "4,3"}, {"SLURM_NODELIST", "n[07-08]"}});
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_NODELIST"})
    variables.erase(name);
  EXPECT_EQ(parse(variables).local_world_size, 3);
}

TEST(Environment, SrunsVariablesAreReadAsStrictly) {
  for (const auto& [name, value, why] : std::vector<std::tuple<const char*, const char*, const char*>>{
           {"SLURM_PROCID", "7", "SLURM_PROCID=7 must be less than SLURM_STEP_NUM_TASKS=7"},
           {"SLURM_PROCID", "x", "SLURM_PROCID='x' is not a whole number"},
           {"SLURM_LOCALID", "3", "SLURM_LOCALID=3 must be less than SLURM_STEP_TASKS_PER_NODE=3"},
           {"SLURM_NODEID", "2", "SLURM_NODEID=2 must be less than the number of nodes of SLURM_STEP_TASKS_PER_NODE=2"},
           {"SLURM_STEP_NUM_TASKS", "8", "SLURM_STEP_NUM_TASKS=8 must be the sum of SLURM_STEP_TASKS_PER_NODE=7"},
           {"SLURM_STEP_TASKS_PER_NODE", "4,x", "SLURM_STEP_TASKS_PER_NODE='4,x' is not a list of tasks per node"},
           {"SLURM_STEP_NODELIST", "n[07-09]", "SLURM_STEP_NODELIST=3 must be as many hosts as"},
           {"SLURM_STEP_NODELIST", "n[07", "SLURM_STEP_NODELIST='n[07' is not a list of hosts"}})
    EXPECT_THAT(refusal(under_srun({{name, value}})), HasSubstr(why)) << name << "=" << value;
  for (const char* missing : {"SLURM_LOCALID", "SLURM_NODEID"}) {
    auto variables = under_srun();
    variables.erase(missing);
    EXPECT_THAT(refusal(variables), AllOf(HasSubstr(missing), HasSubstr("is not set"))) << missing;
  }
}

TEST(Environment, ABatchScriptIsNoTaskOfSrun) {
  // Slurm numbers the steps of batch scripts and interactive shells from the top.
  for (const char* step : {"4294967291", "4294967290"}) {
    const auto alone = parse(under_srun({{"SLURM_STEP_ID", step}, {"SLURM_PROCID", "0"}}));
    EXPECT_FALSE(alone.launched) << step;
    EXPECT_EQ(alone.unstarted_tasks, 7) << step;
  }
  auto batch = under_srun();
  batch.erase("SLURM_STEP_ID");
  EXPECT_EQ(parse(batch).unstarted_tasks, 7);
  EXPECT_EQ(parse({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "1"}}).unstarted_tasks, 0);
  EXPECT_EQ(parse({}).unstarted_tasks, 0);
}

TEST(Environment, AnMpirunInsideSlurmCountsBeforeItsHelpersStep) {
  auto both =
      under_srun({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}});
  both.merge(under_mpirun());
  EXPECT_EQ(parse(both).launcher, "mpirun");
  EXPECT_EQ(parse(both).global_rank, 5);
}

TEST(Environment, MpichsRanksAreRecognised) {
  const auto rank = parse({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(rank.launcher, "MPICH's mpirun");
  EXPECT_EQ(rank.global_rank, 3);
  EXPECT_EQ(rank.num_nodes, 2);
  EXPECT_FALSE(rank.by_mpirun);
  // srun --mpi=pmi2 sets two of the four for its own tasks.
  EXPECT_EQ(parse(under_srun({{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}})).launcher, "srun");
}

TEST(Environment, SentencesCallLaunchersByTheirNames) {
  EXPECT_EQ(parse(good()).launcher, "the launcher");
  EXPECT_EQ(parse(good({{"TRIREME_JOB_ID", "a"}})).launcher, "trireme");
  EXPECT_EQ(parse(good({{"TORCHELASTIC_RUN_ID", "a"}})).launcher, "torchrun");
  EXPECT_EQ(parse(good({{"TORCHELASTIC_RUN_ID", "a"}, {"ACCELERATE_MIXED_PRECISION", "no"}})).launcher,
            "accelerate launch");
  EXPECT_EQ(parse({}).launcher, "");
}

TEST(Environment, AStoreDescriptorThatIsNoListeningSocketIsRefused) {
  for (const auto& [name, value] : good({{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"TRIREME_STORE_FD", "1000"}})) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  EXPECT_THROW(rank_environment(), UsageError);
  for (const auto& [name, value] : good({{"TRIREME_STORE_FD", ""}})) unsetenv(name.c_str());
}

}  // namespace
}  // namespace trireme::launch
