#include "trireme/launch/machines/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> hosts(const std::string& text) { return expand_host_list("SLURM_NODELIST", text); }
std::vector<int> tasks(const std::string& text) { return expand_task_counts("SLURM_TASKS_PER_NODE", text); }

template <class Read>
std::string refusal(Read read, const std::string& text) {
  try {
    read(text);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "(accepted)";
}

TEST(HostList, NamesRangesAndProducts) {
  EXPECT_THAT(hosts("vm"), ElementsAre("vm"));
  EXPECT_THAT(hosts("a,b-2,c.d"), ElementsAre("a", "b-2", "c.d"));
  EXPECT_THAT(hosts("node[01-03,7],gpu5"), ElementsAre("node01", "node02", "node03", "node7", "gpu5"));
  EXPECT_THAT(hosts("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(hosts("n[099-101]x"), ElementsAre("n099x", "n100x", "n101x"));
  EXPECT_THAT(hosts("r[1-2]n[3,5]"), ElementsAre("r1n3", "r1n5", "r2n3", "r2n5"));
  EXPECT_EQ(hosts("n[1-65536]").size(), 65'536U);
  EXPECT_THAT(hosts("n[2147483647]"), ElementsAre("n2147483647"));
}

TEST(HostList, WhatIsNoListIsRefused) {
  for (const auto& [text, why] :
       std::vector<std::pair<std::string, std::string>>{{"", "a name is empty"},
                                                        {"a,", "a name is empty"},
                                                        {"a,,b", "a name is empty"},
                                                        {"n[1-2", "a bracket does not close"},
                                                        {"n1-2]", "a bracket closes that was not opened"},
                                                        {"n[3-1]", "the range 3-1 runs backwards"},
                                                        {"n[]", "a number is missing at character 3"},
                                                        {"n[1-]", "a number is missing at character 5"},
                                                        {"n[a]", "a number is missing at character 3"},
                                                        {"n[99999999999]", "99999999999 is too large"},
                                                        {"n[1-65537]", "it has more than 65,536 hosts"},
                                                        {"n[1-1000]m[1-1000]", "it has more than 65,536 hosts"}}) {
    EXPECT_THAT(refusal(hosts, text), HasSubstr(why)) << text;
    EXPECT_THAT(refusal(hosts, text), HasSubstr("SLURM_NODELIST='" + text + "'")) << text;
  }
}

TEST(TaskCounts, OnePerNode) {
  EXPECT_THAT(tasks("4"), ElementsAre(4));
  EXPECT_THAT(tasks("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(tasks("1,2,3(x2)"), ElementsAre(1, 2, 3, 3));
  for (const auto& [text, why] :
       std::vector<std::pair<std::string, std::string>>{{"", "a number is missing at character 1"},
                                                        {"two", "a number is missing at character 1"},
                                                        {"2(3)", "a bracket must say (xN)"},
                                                        {"2(x3", "a bracket does not close"},
                                                        {"0", "at least 1"},
                                                        {"2(x0)", "at least 1"},
                                                        {"2 2", "' ' is not expected"},
                                                        {"1(x99999)", "more than 65,536 nodes"}})
    EXPECT_THAT(refusal(tasks, text), HasSubstr(why)) << text;
}

TEST(Hosts, NamesWithAndWithoutRanks) {
  EXPECT_EQ(parse_host("hosts", "user@node1").name, "user@node1");
  EXPECT_EQ(parse_host("hosts", "node1").ranks, 0);
  EXPECT_EQ(parse_host("hosts", "node1:4").name, "node1");
  EXPECT_EQ(parse_host("hosts", "node1:4").ranks, 4);
  for (const char* wrong : {"", ":4", "a:", "a:0", "a:x", "a:4x", "a:-1", "a b", "-oProxyCommand=x", "a:99999999999"})
    EXPECT_THROW(parse_host("hosts", wrong), UsageError) << wrong;
}

TEST(Hosts, HostfilesOfOpenMpiAreRead) {
  EXPECT_EQ(parse_hostfile("f", "\xEF\xBB\xBFhost-a slots=2\r\n").at(0).name, "host-a");
  const std::vector<HostRanks> hosts = parse_hostfile("f", "# machines\n\na slots=2\n b:3 # fast\nc");
  ASSERT_EQ(hosts.size(), 3);
  EXPECT_EQ(hosts[0].name + hosts[1].name + hosts[2].name, "abc");
  EXPECT_EQ(hosts[0].ranks * 100 + hosts[1].ranks * 10 + hosts[2].ranks, 230);
  for (const char* wrong : {"", "# nobody", "a slots=", "a slots=2 max-slots=3", "a cores=2"})
    EXPECT_THROW(parse_hostfile("f", wrong), UsageError) << wrong;
}

}  // namespace
}  // namespace trireme::launch
