// Each disturbance is made in figures of two ranks on two machines: it is named once, with its machine.
#include "trireme/observe/disturbances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace trireme::observe {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

/// Windows of two seconds, in which each rank has a core of its own.
struct Machines {
  std::array<HostWindow, 2> ranks;
  Disturbances watch;

  Machines() {
    for (size_t i = 0; i < ranks.size(); ++i)
      ranks[i] = {.rank = double(i),
                  .node = double(i),
                  .seconds = 2,
                  .step = 0.1,
                  .data = 0.02,
                  .save = 0.5,
                  .cpus = 1,
                  .busy = 1.9,
                  .own = 1.9,
                  .waited = 0.01,
                  .megahertz = 3500};
  }
  /// The lines of `windows` more windows.
  std::vector<std::string> run(int windows) {
    std::vector<std::string> lines;
    for (int i = 0; i < windows; ++i)
      for (const std::string& line : watch.see(ranks)) lines.push_back(line);
    return lines;
  }
};

TEST(Disturbances, AnUndisturbedRunHasNone) {
  Machines m;
  EXPECT_THAT(m.run(1000), IsEmpty());
}

TEST(Disturbances, WhatTheMachineDoesNotTellIsSilent) {
  Machines m;
  for (HostWindow& r : m.ranks) r = {.rank = r.rank, .node = r.node, .seconds = 2, .step = 0.1};
  EXPECT_THAT(m.run(10), IsEmpty());
  for (HostWindow& r : m.ranks) r.seconds = 0;
  EXPECT_THAT(m.run(10), IsEmpty());
}

TEST(Disturbances, AProgramOnTheCoresOfARankIsNamedOnce) {
  Machines m;
  m.run(5);
  m.ranks[1].busy = 2.0, m.ranks[1].own = 1.2, m.ranks[1].waited = 0.75;
  EXPECT_THAT(m.run(1), IsEmpty());  // one window alone is no reason
  EXPECT_THAT(m.run(20), ElementsAre(AllOf(StartsWith("slow     rank 1 (machine 1): another program takes its cores "
                                                      "for 38 % of the time"))));
}

TEST(Disturbances, AProgramOnCoresThatNoThreadWaitsForIsNone) {
  Machines m;
  m.ranks[1].busy = 8;
  EXPECT_THAT(m.run(5), IsEmpty());
}

// Their threads wait for each other, and no other program works.
TEST(Disturbances, RanksThatShareCoresAreNoNeighbours) {
  Machines m;
  for (HostWindow& r : m.ranks) r.node = 0, r.busy = 2, r.own = 1, r.waited = 1;
  EXPECT_THAT(m.run(5), IsEmpty());
  m.ranks[1].cpus = 2;  // cores of its own, which someone else has
  EXPECT_THAT(m.run(5), ElementsAre(StartsWith("slow     rank 0: another program takes its cores for 50 %")));
}

TEST(Disturbances, AMachineIsNamedOnceForAllItsRanks) {
  Machines m;
  for (HostWindow& r : m.ranks) r.node = 0, r.stolen = 0.5;
  EXPECT_THAT(m.run(5), ElementsAre(HasSubstr("gives its cores to others for 25 % of the time")));
}

TEST(Disturbances, AQuota) {
  Machines m;
  m.ranks[0].throttled = 0.7;
  EXPECT_THAT(m.run(5), ElementsAre(StartsWith("slow     rank 0 (machine 0): its control group's CPU quota stops it "
                                               "for 35 %")));
}

TEST(Disturbances, PagesReadFromSwapSpace) {
  Machines m;
  m.ranks[1].swapped_bytes = 100 << 20;
  EXPECT_THAT(m.run(5), IsEmpty());  // they rest there
  m.ranks[1].major_faults = 5000;
  EXPECT_THAT(m.run(5), ElementsAre(HasSubstr("100 MiB of it are in swap space, and reading them takes 25 %")));
}

TEST(Disturbances, SwapSpaceThatGrows) {
  Machines m;
  std::vector<std::string> lines;
  for (int i = 0; i < 5; ++i) {
    m.ranks[1].swapped_bytes += 100 << 20;
    for (const std::string& line : m.run(1)) lines.push_back(line);
  }
  EXPECT_THAT(lines, ElementsAre(HasSubstr("200 MiB of it are in swap space, and they become more")));
}

TEST(Disturbances, ClocksThatFallAndSlowTheSteps) {
  Machines m;
  m.run(5);
  m.ranks[0].megahertz = 2400;
  EXPECT_THAT(m.run(3), IsEmpty());  // the core idles: no step takes longer
  m.ranks[0].step = 0.14;
  EXPECT_THAT(m.run(3), ElementsAre(HasSubstr("its clock fell from 3500 to 2400 MHz, and steps take 40 % longer")));
}

TEST(Disturbances, ADiskOfDataThatSlows) {
  Machines m;
  m.run(5);
  m.ranks[0].data = 0.8;
  EXPECT_THAT(m.run(3), ElementsAre(HasSubstr("it waits for data 40 % of the time, before 1.0 %")));
}

// A loader that was slow from the beginning is the profile's to judge.
TEST(Disturbances, ALoaderThatWasAlwaysSlowHasNotSlowed) {
  Machines m;
  m.ranks[0].data = 0.8;
  EXPECT_THAT(m.run(10), IsEmpty());
}

TEST(Disturbances, ADiskOfCheckpointsThatSlows) {
  Machines m;
  m.run(5);
  m.ranks[1].save = 4;
  EXPECT_THAT(m.run(1), IsEmpty());
  m.ranks[1].save = 0;  // a window without a save says nothing
  EXPECT_THAT(m.run(3), IsEmpty());
  m.ranks[1].save = 4;
  EXPECT_THAT(m.run(1), ElementsAre(HasSubstr("a save takes it 4.0 s, before 0.5 s")));
}

}  // namespace
}  // namespace trireme::observe
