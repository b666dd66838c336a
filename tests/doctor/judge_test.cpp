#include "trireme/doctor/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/doctor/report.h"

namespace trireme::doctor {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

constexpr double kMicrosecond = 1e-6, kMegabyte = 1e6, kGigabyte = 1e9;

// A healthy rank of host `host`.
Facts healthy(int rank, const std::string& host) {
  Facts f;
  f.rank = rank;
  f.host = f.machine = host;
  f.processor = "Zen";
  f.cores = 8;
  f.usable_cores = 4;
  f.memory_bytes = f.available_bytes = int64_t{64} << 30;
  f.shm_bytes = f.shm_free_bytes = int64_t{32} << 30;
  f.open_files = 65536;
  f.open_files_at_most = 65536;
  f.own_address = "10.0.0." + std::to_string(rank + 1);
  f.interfaces = {{"eth0", f.own_address, 10000, 1500}};
  f.route = "eth0";
  f.trireme = "1";
  f.libtorch = "2";
  f.disk = {
      .folder = "/out", .free_bytes = int64_t{100} << 30, .measured_bytes = 1, .write_rate = 1e9, .read_rate = 2e9};
  return f;
}

// `ranks_each` ranks on each of `hosts` hosts a, b, c, ...
std::vector<Facts> cluster(int hosts, int ranks_each = 1) {
  std::vector<Facts> all;
  for (int rank = 0; rank < hosts * ranks_each; ++rank)
    all.push_back(healthy(rank, std::string(1, static_cast<char>('a' + rank / ranks_each))));
  return all;
}

// Every two ranks, healthy: shm on one host, else Gloo.
std::vector<PairResult> pairs_of(const std::vector<Facts>& facts) {
  std::vector<PairResult> pairs;
  for (const Facts& b : facts)
    for (const Facts& a : facts) {
      if (a.rank >= b.rank) continue;
      const bool near = a.host == b.host;
      const double rate = near ? 4 * kGigabyte : 800 * kMegabyte;
      pairs.push_back({.first = a.rank,
                       .second = b.rank,
                       .backend = near ? "shm" : "gloo",
                       .latency_seconds = near ? kMicrosecond : 60 * kMicrosecond,
                       .forth_rate = rate,
                       .back_rate = rate,
                       .clock_error_seconds = 60 * kMicrosecond});
    }
  return pairs;
}

auto is(Grade grade, const std::string& text) {
  return AllOf(Field(&Finding::grade, grade), Field(&Finding::text, HasSubstr(text)));
}
auto has_a_fix() { return Field(&Finding::fix, Not("")); }
const auto kIsFine = Field(&Finding::grade, Grade::ok);

TEST(JudgeHosts, HealthyHostsAreToldOnceAndNothingIsWrong) {
  const std::vector<Finding> findings = judge_hosts(cluster(3, 2));
  EXPECT_THAT(findings, Each(kIsFine));
  EXPECT_THAT(findings, Contains(is(Grade::ok, "all 3 hosts: 2 ranks x 4 cores of 8, Zen")));
  EXPECT_THAT(findings, Contains(is(Grade::ok, "no GPU")));
}

TEST(JudgeHosts, EachThingThatIsWrongIsNamedWithItsWayOut) {
  struct Case {
    void (*spoil)(Facts&);
    Grade grade;
    const char* text;
  };
  const Case cases[] = {
      {[](Facts& f) { f.cores = 1; }, Grade::warn, "b: 2 ranks x 4 cores of 1, Zen: ranks take turns"},
      {[](Facts& f) { f.cpu_quota = 1.5; }, Grade::warn, "1.5 of them by quota: ranks take turns"},
      {[](Facts& f) { f.available_bytes = 1 << 30; }, Grade::warn, "only 512 MiB free a rank"},
      {[](Facts& f) { f.open_files = 300; }, Grade::warn, "300 open files a process, 4 ranks want about 320"},
      {[](Facts& f) { f.open_files = 128; }, Grade::fail, "128 open files"},
      {[](Facts& f) { f.own_address = ""; }, Grade::warn, "b: the host's own name does not resolve"},
      {[](Facts& f) { f.own_address = "127.0.1.1"; }, Grade::warn, "b resolves to 127.0.1.1 here"},
      {[](Facts& f) { f.resolve_seconds = 5; }, Grade::warn, "looking up b took 5.0 s"},
      {[](Facts& f) { f.interfaces.clear(); }, Grade::fail, "no interface but the loopback"},
      {[](Facts& f) { f.disk.write_rate = 9e6; }, Grade::warn, "b: disk /out: 9 MB/s write with fsync"},
      {[](Facts& f) { f.disk.free_bytes = 1 << 20, f.disk.write_rate /= 2; }, Grade::warn, "1.00 MiB free"},
      {[](Facts& f) { f.disk.problem = "read-only"; }, Grade::fail, "/out: read-only"},
      {[](Facts& f) { f.libtorch = "3"; }, Grade::fail, "versions of LibTorch differ: 2 on a; 3 on b"},
      {[](Facts& f) { f.trireme = "0"; }, Grade::fail, "versions of Trireme differ: 0 on b; 1 on a"},
      {[](Facts& f) { f.processor = "Atom"; }, Grade::warn, "processors differ: Atom on b; Zen on a"},
      {[](Facts& f) { f.gpus = {{.name = "H100"}}; }, Grade::warn, "GPUs differ: none on a; H100 on b"},
      {[](Facts& f) { f.gpus = {{.name = "H100"}, {.name = "A100"}}; }, Grade::warn, "1 x A100; 1 x H100"},
      {[](Facts& f) {
         f.gpus = {{.name = "H100", .pcie = "1.0 x8", .pcie_at_most = "5.0 x16"},
                   {.name = "H100", .pcie = "1.0 x16", .pcie_at_most = "5.0 x16"}};
       },
       Grade::warn, "PCIe 5.0 x16 running as x8"},
      {[](Facts& f) {
         f.gpus = {{.name = "H100"}};
         f.shm_bytes = 64 << 20;
       },
       Grade::warn, "/dev/shm holds 64.0 MiB"},
  };
  for (const Case& c : cases) {
    std::vector<Facts> facts = cluster(2, 2);
    for (int rank : {2, 3}) c.spoil(facts[static_cast<size_t>(rank)]);
    EXPECT_THAT(judge_hosts(facts), Contains(AllOf(is(c.grade, c.text), has_a_fix()))) << c.text;
  }
}

TEST(JudgeHosts, TheWayOutOfFewOpenFilesIsOneThatTheHostAllows) {
  std::vector<Facts> facts = cluster(1, 2);
  for (Facts& f : facts) f.open_files = 100;
  EXPECT_THAT(judge_hosts(facts), Contains(Field(&Finding::fix, "ulimit -n 288")));
  for (Facts& f : facts) f.open_files_at_most = 287;
  EXPECT_THAT(judge_hosts(facts), Contains(Field(&Finding::fix, HasSubstr("limits.conf"))));
}

TEST(JudgeHosts, LittleSharedMemoryMattersToCardsAlone) {
  std::vector<Facts> facts = cluster(1, 2);
  for (Facts& f : facts) f.shm_bytes = f.shm_free_bytes = 0;
  EXPECT_THAT(judge_hosts(facts), Each(kIsFine));
  EXPECT_THAT(judge_hosts(facts), Contains(is(Grade::ok, "/dev/shm not needed (there is none)")));
  facts = cluster(1, 2);
  for (Facts& f : facts) f.gpus = {{.name = "H100"}};
  EXPECT_THAT(judge_hosts(facts), Each(kIsFine));
}

TEST(JudgeHosts, DriversThatDifferAreNamed) {
  std::vector<Facts> facts = cluster(2);
  for (Facts& f : facts) f.gpus = {{.name = "H100"}};
  facts[0].driver = "570";
  facts[1].driver = "535";
  EXPECT_THAT(judge_hosts(facts), Contains(is(Grade::warn, "GPU drivers differ: 535 on b; 570 on a")));
}

TEST(JudgeHosts, WhatAHostHasIsTold) {
  std::vector<Facts> facts = cluster(2);
  for (Facts& f : facts) {
    f.interfaces.push_back({"docker0", "172.17.0.1", 0, 1500});
    f.memory_limit_bytes = int64_t{8} << 30;
  }
  const std::vector<Finding> findings = judge_hosts(facts);
  EXPECT_THAT(findings, Contains(is(Grade::ok, "eth0 10 Gb/s (ranks talk here), docker0")));
  EXPECT_THAT(findings, Contains(is(Grade::ok, "64.0 GiB memory, 8.00 GiB allowed here")));
  EXPECT_THAT(judge_hosts(cluster(1)), Contains(is(Grade::ok, "eth0 10.0.0.1 10 Gb/s")));
  EXPECT_THAT(judge_hosts(cluster(1)), Each(Not(Field(&Finding::text, HasSubstr("allowed here")))));
}

TEST(JudgeHosts, OneHostNeedsNeitherNamesNorInterfaces) {
  std::vector<Facts> facts = cluster(1, 2);
  for (Facts& f : facts) {
    f.own_address = "";
    f.interfaces.clear();
  }
  EXPECT_THAT(judge_hosts(facts), Each(kIsFine));
}

TEST(JudgePairs, HealthyPairsAreOneLineABackend) {
  const std::vector<Facts> facts = cluster(2, 2);
  const std::vector<Finding> findings = judge_pairs(facts, pairs_of(facts));
  EXPECT_THAT(findings, Each(kIsFine));
  EXPECT_THAT(findings, Contains(is(Grade::ok, "shm: 2 pairs of ranks, 4.00 GB/s and 1.00 us one way")));
  EXPECT_THAT(findings, Contains(is(Grade::ok, "gloo: 4 pairs of ranks, 800 MB/s and 60.0 us one way")));
}

TEST(JudgePairs, ASlowPairIsNamedBesideTheOthersWithItsInterfaces) {
  std::vector<Facts> facts = cluster(3);
  facts[1].interfaces[0].megabits = 1000;
  std::vector<PairResult> pairs = pairs_of(facts);
  pairs[0].back_rate = 9 * kMegabyte;  // one direction is enough
  EXPECT_THAT(judge_pairs(facts, pairs),
              Contains(AllOf(is(Grade::fail, "rank 0 (a) <-> rank 1 (b): 9.00 MB/s, others 800 MB/s"),
                             Field(&Finding::fix, HasSubstr("eth0 of b (1,000 Mb/s)")))));
}

TEST(JudgePairs, AHostAllOfWhosePairsAreSlowIsNamed) {
  const std::vector<Facts> facts = cluster(3);
  std::vector<PairResult> pairs = pairs_of(facts);
  for (PairResult& p : pairs)
    if (p.second == 2) p.forth_rate = 9 * kMegabyte;
  const std::vector<Finding> findings = judge_pairs(facts, pairs);
  EXPECT_THAT(findings, Contains(is(Grade::fail, "every pair of host c is slow")));
  EXPECT_THAT(findings, Not(Contains(is(Grade::fail, "rank 0 (a) <-> rank 1 (b)"))));
}

TEST(JudgePairs, AHostThatTalksWellToOneIsNotToBlame) {
  const std::vector<Facts> facts = cluster(4);
  std::vector<PairResult> pairs = pairs_of(facts);
  for (PairResult& p : pairs)
    if (p.second == 3 && p.first != 2) p.forth_rate = 9 * kMegabyte;
  pairs[0].latency_seconds = 5e-3;
  const std::vector<Finding> findings = judge_pairs(facts, pairs);
  EXPECT_THAT(findings, Contains(is(Grade::warn, "rank 0 (a) <-> rank 1 (b): 5.00 ms one way, others 60.0 us")));
  EXPECT_THAT(findings, Contains(is(Grade::fail, "rank 1 (b) <-> rank 3 (d): 9.00 MB/s")));
  EXPECT_THAT(findings, Not(Contains(Field(&Finding::text, HasSubstr("every pair")))));
}

TEST(JudgePairs, ASlowPairOfOneHostIsNoFaultOfItsNetwork) {
  const std::vector<Facts> facts = cluster(1, 3);
  std::vector<PairResult> pairs = pairs_of(facts);
  pairs[0].forth_rate = 100 * kMegabyte;
  EXPECT_THAT(judge_pairs(facts, pairs), Contains(AllOf(is(Grade::warn, ": 100 MB/s, others 4.00 GB/s"),
                                                        Field(&Finding::fix, HasSubstr("other work on these cores")))));
}

TEST(JudgePairs, TwoHostsAloneAreMeasuredByWhatTheirInterfacesNegotiated) {
  const std::vector<Facts> facts = cluster(2);
  std::vector<PairResult> pairs = pairs_of(facts);
  pairs[0].forth_rate = 9 * kMegabyte;
  EXPECT_THAT(judge_pairs(facts, pairs), Contains(is(Grade::fail, "9.00 MB/s, its interfaces negotiated 1.25 GB/s")));
}

TEST(JudgePairs, FarHostsClocksAndBrokenPairsAreTold) {
  const std::vector<Facts> facts = cluster(3);
  std::vector<PairResult> pairs = pairs_of(facts);
  pairs[0].latency_seconds = 5e-3;
  pairs[0].clock_seconds = 3.2;
  pairs[2].problem = "rank 2 has not joined";
  const std::vector<Finding> findings = judge_pairs(facts, pairs);
  EXPECT_THAT(findings, Contains(is(Grade::warn, "rank 0 (a) <-> rank 1 (b): 5.00 ms one way")));
  EXPECT_THAT(findings, Contains(is(Grade::warn, "host b's clock is 3.2 s ahead: logs will not line up")));
  EXPECT_THAT(findings, Contains(is(Grade::fail, "rank 1 (b) <-> rank 2 (c): rank 2 has not joined")));
}

TEST(JudgePairs, ASlowClockComparisonProvesNothing) {
  const std::vector<Facts> facts = cluster(2);
  std::vector<PairResult> pairs = pairs_of(facts);
  pairs[0].clock_seconds = 0.7;
  pairs[0].clock_error_seconds = 0.4;
  EXPECT_THAT(judge_pairs(facts, pairs), Not(Contains(Field(&Finding::topic, "clock"))));
}

TEST(JudgePairs, ContainersOfOneMachineThatShareNoMemoryAreTold) {
  std::vector<Facts> facts = cluster(2);
  facts[1].machine = facts[0].machine;
  EXPECT_THAT(judge_pairs(facts, pairs_of(facts)), Contains(is(Grade::warn, "cannot open each other's memory")));
  facts[1].host_id = "elsewhere";  // on purpose
  EXPECT_THAT(judge_pairs(facts, pairs_of(facts)), Each(kIsFine));
}

TEST(JudgeCollectives, TheyStandBesideTheirLimit) {
  const std::vector<CollectiveResult> results{{.name = "all_reduce",
                                               .backend = "shm",
                                               .bytes = 4 << 20,
                                               .seconds = 1e-3,
                                               .rate = 5e9,
                                               .limit = 10e9,
                                               .limit_name = "a copy"}};
  EXPECT_THAT(judge_collectives(10e9, results),
              Contains(is(Grade::ok, "shm of 4.00 MiB: all_reduce 5.00 GB/s (50 %); limit 10.0 GB/s, a copy")));
  EXPECT_THAT(
      judge_collectives(100e9, std::vector<CollectiveResult>{{.name = "all_reduce", .rate = 1e9, .limit = 100e9}}),
      Contains(is(Grade::warn, "(1 %)")));
}

TEST(Hosts, RanksShareAHostByMachineNameAndId) {
  std::vector<Facts> facts = cluster(1, 3);
  EXPECT_EQ(hosts_of(facts).size(), 1);
  facts[1].machine = "another";
  facts[2].host_id = "played";
  const std::vector<Host> hosts = hosts_of(facts);
  ASSERT_EQ(hosts.size(), 3);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[1].name, "a (2)");
  EXPECT_EQ(hosts[2].ranks, std::vector<int>{2});
}

TEST(Report, MatrixShowsBothDirectionsAndFindingsEndWithTheWorst) {
  Examination e;
  e.facts = cluster(2);
  e.pairs = pairs_of(e.facts);
  e.pairs[0].back_rate = 0.5 * kGigabyte;
  e.findings = {{Grade::fail, "disk", "broken", "mend it"}, {Grade::ok, "cores", "fine"}};
  EXPECT_EQ(report_text(e),
            "GB/s, a row sends            0       1\n"
            "                rank 0       .   0.800\n"
            "                rank 1   0.500       .\n"
            "\n"
            "microseconds one way         0       1\n"
            "                rank 0       .    60.0\n"
            "                rank 1    60.0       .\n"
            "\n"
            "ok    fine\n"
            "FAIL  broken\n"
            "      -> mend it\n"
            "0 warnings, 1 failure\n");
}

TEST(FactsAsJson, NothingIsLost) {
  Facts facts = healthy(3, "node \"x\"");
  facts.gpus = {{.name = "H100", .memory_bytes = 80, .nvlinks = 18, .pcie = "5.0 x16"}};
  facts.backends = {"mpi"};
  EXPECT_EQ(write_facts(read_facts(write_facts(facts))), write_facts(facts));
  EXPECT_EQ(read_facts(write_facts(facts)).gpus[0].nvlinks, 18);
  EXPECT_EQ(read_facts(write_facts(facts)).host, "node \"x\"");
  EXPECT_ANY_THROW(read_facts("{}"));
}

}  // namespace
}  // namespace trireme::doctor
