// The suite on ranks that mpirun starts, what survivors see when one is lost, and the refusals without mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cstdio>

#include "trireme/base/error.h"
#include "trireme/comm/factory.h"
#include "trireme/comm/mpi/loader.h"

namespace trireme::comm::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Job {
  std::string output;  // of all ranks, and of mpirun
  int exit_code = -1;
};

Job run(const std::string& command) {
  Job job;
  std::FILE* pipe = popen((command + " 2>&1 </dev/null").c_str(), "r");
  if (!pipe) throw std::runtime_error("no pipe");
  char buffer[4096];
  for (size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) job.output.append(buffer, n);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) job.exit_code = WEXITSTATUS(status);
  return job;
}

// Empty when ranks can be started, else why not.
std::string why_not() {
#ifdef TRIREME_HAS_MPI
  return run("command -v mpirun").exit_code == 0 ? "" : "mpirun is not installed (openmpi-bin)";
#else
  return "backend mpi was left out of this build (libopenmpi-dev)";
#endif
}

struct Ranks {
  int size = 2;
  std::string part = "checks";
  std::string transport = "self,vader";
  std::string recovery = "";
  std::string rank = "$OMPI_COMM_WORLD_RANK";  // what each process takes for its rank
  std::string group_size = "$OMPI_COMM_WORLD_SIZE";
  std::string program = TRIREME_COMM_RANK_PROGRAM;
};

// Open MPI keeps what its modules have allocated, and unloads the modules, so that no suppression can name them.
#ifdef TRIREME_SANITIZED
constexpr const char* kWithoutLeaks = "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 ";
#else
constexpr const char* kWithoutLeaks = "";
#endif

// comm_rank under mpirun, with everything on this host and in loopback. The store is there because comm_rank opens
// one; the backend has no use for it.
Job run_ranks(const Ranks& o) {
  const auto server = open_store({.is_server = true});
  setenv("TRIREME_COMM_PORT", std::to_string(server.port).c_str(), 1);
  setenv("TRIREME_COMM_TOKEN", server.token.c_str(), 1);
  setenv("TRIREME_COMM_PART", o.part.c_str(), 1);
  setenv("TRIREME_COMM_BACKEND", "mpi", 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  return run(std::string(kWithoutLeaks) + "timeout 120 mpirun --allow-run-as-root --oversubscribe --bind-to none " +
             o.recovery + " --mca btl " + o.transport +
             " --mca btl_tcp_if_include lo --mca btl_vader_single_copy_mechanism none -x LD_LIBRARY_PATH=" +
             TRIREME_LIBRARY_FOLDER + " -n " + std::to_string(o.size) + " sh -c 'TRIREME_COMM_RANK=" + o.rank +
             " TRIREME_COMM_SIZE=" + o.group_size + " exec " + o.program + "'");
}

class MpiRing : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (const std::string why = why_not(); !why.empty()) GTEST_SKIP() << why;
  }
};

TEST_P(MpiRing, PassesTheSuite) {
  const Job job = run_ranks({.size = GetParam()});
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.output, "");  // a warning in the log is a failure too
}

// Every part of a tensor is a message of its own; over TCP the parts of one pair share a stream.
TEST_P(MpiRing, PassesLargeBuffers) {
  for (const char* transport : {"self,vader", "self,tcp"}) {
    const Job job = run_ranks({.size = GetParam(), .part = "checks Large Messages AllToAll", .transport = transport});
    EXPECT_EQ(job.exit_code, 0) << transport;
    EXPECT_EQ(job.output, "") << transport;
  }
}

TEST_P(MpiRing, SilentRankIsATimeout) {
  const int size = GetParam();
  const Job job = run_ranks({.size = size, .part = "silent", .recovery = "--enable-recovery"});
  const std::string last = std::to_string(size - 1);
  EXPECT_THAT(job.output, AllOf(HasSubstr("[comm] all_reduce #1 of group 'shard'"), HasSubstr("for 1500 ms"),
                                HasSubstr("rank " + last + " (global rank " + last + ")")));
  for (int k = 0; k + 1 < size; ++k)
    EXPECT_THAT(job.output, HasSubstr("operation=all_reduce group=shard global_rank=" + std::to_string(k)));
}

INSTANTIATE_TEST_SUITE_P(Communicator, MpiRing, ::testing::Values(2, 4),
                         [](const auto& info) { return std::to_string(info.param) + "ranks"; });

Job run_part(const std::string& part, const std::string& recovery = "") {
  return run_ranks({.size = 4, .recovery = recovery, .program = TRIREME_MPI_RANK_PROGRAM + (" " + part)});
}

TEST(Mpi, GroupsShareRanksAndAreUnderWayAtOnce) {
  if (const std::string why = why_not(); !why.empty()) GTEST_SKIP() << why;
  const Job job = run_part("groups");
  EXPECT_EQ(job.exit_code, 0);
  EXPECT_EQ(job.output, "");
}

TEST(Mpi, RankThatDoesNotJoinIsNamed) {
  if (const std::string why = why_not(); !why.empty()) GTEST_SKIP() << why;
  const Job job = run_part("absent", "--enable-recovery");
  for (const char* rank : {"0", "1", "2"})
    EXPECT_THAT(job.output, HasSubstr(std::string("[comm] connect of group 'shard' on rank ") + rank));
  EXPECT_THAT(job.output, HasSubstr("global ranks [3] have not joined"));
  // Who comes late finds their first greetings and nobody there.
  EXPECT_THAT(job.output, AllOf(HasSubstr("on rank 3"), HasSubstr("global ranks [0, 1, 2] have not joined")));
}

TEST(Mpi, GroupsMadeInDifferentOrdersAreAnError) {
  if (const std::string why = why_not(); !why.empty()) GTEST_SKIP() << why;
  const Job job = run_part("swapped", "--enable-recovery");
  EXPECT_THAT(job.output, AllOf(HasSubstr("connect of group 'a' on rank 0"), HasSubstr("[2, 3] have not joined"),
                                HasSubstr("connect of group 'b' on rank 3"), HasSubstr("[0, 1] have not joined")));
}

TEST(Mpi, SurvivorsOfALostRankGetAnErrorWhereMpirunLetsThemLive) {
  if (const std::string why = why_not(); !why.empty()) GTEST_SKIP() << why;
  const Job job = run_part("lost", "--enable-recovery");
  for (const std::string rank : {"0", "1", "2"})
    EXPECT_THAT(job.output,
                AllOf(HasSubstr("global_rank=" + rank + " peer=3 text=[comm] all_reduce #1 of group 'shard'"),
                      HasSubstr("global_rank=" + rank + " peer=-1 text=[comm] barrier #2 of group 'shard'")));
  EXPECT_THAT(job.output, HasSubstr("the group is unusable since all_reduce #1: rank 3 (global rank 3)"));
}

TEST(Mpi, KilledRankEndsTheJob) {
  if (const std::string why = why_not(); !why.empty()) GTEST_SKIP() << why;
  const Job job = run_ranks({.size = 4, .part = "killed"});
  EXPECT_NE(job.exit_code, 0);
  EXPECT_THAT(job.output, HasSubstr("signal 9"));
}

TEST(Mpi, RanksThatDoNotFitMpisAreRefused) {
  if (const std::string why = why_not(); !why.empty()) GTEST_SKIP() << why;
  const Job turned = run_ranks({.part = "backend", .rank = "$((1 - OMPI_COMM_WORLD_RANK))"});
  EXPECT_NE(turned.exit_code, 0);
  EXPECT_THAT(turned.output, HasSubstr("but mpirun made it global rank"));
  const Job too_few = run_ranks({.part = "backend", .group_size = "3"});
  EXPECT_NE(too_few.exit_code, 0);
  EXPECT_THAT(too_few.output, HasSubstr("rank 2 (global rank 2) is not one of the 2 ranks that mpirun started"));
}

std::string refusal(const GroupOptions& options) {
  try {
    make_communicator(options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(Mpi, WithoutMpirunIsOneClearRefusal) {
  EXPECT_FALSE(started_by_mpi());
  EXPECT_THAT(refusal({.backend = "mpi", .size = 2}),
              AllOf(HasSubstr("backend mpi needs ranks that mpirun starts"), HasSubstr("mpirun -n 2"),
                    HasSubstr("use backend auto, shm or gloo"), Not(HasSubstr("\n"))));
}

// This test's own folder holds no such library and no loader path names the build's.
TEST(Mpi, WithoutTheLibraryIsOneClearRefusal) {
  setenv("PMIX_RANK", "0", 1);
  EXPECT_THAT(refusal({.backend = "mpi", .size = 2}),
              AllOf(HasSubstr("needs libtrireme_comm_mpi.so, which cannot be opened"), HasSubstr("libopenmpi-dev")));
  unsetenv("PMIX_RANK");
}

TEST(Mpi, GroupOfOneNeedsNoMpirun) { EXPECT_EQ(make_communicator({.backend = "mpi"})->backend(), "local"); }

}  // namespace
}  // namespace trireme::comm::testing
