#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/launch/machines/ssh_start.h"

namespace trireme::launch {
namespace {

HostOrder read_back(const std::string& text, std::string* rest = nullptr) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  base::FileDescriptor in(ends[0]), out(ends[1]);
  EXPECT_EQ(write(out.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  out = base::FileDescriptor();
  HostOrder order = read_order(in.get());
  char byte = 0;
  while (rest != nullptr && read(in.get(), &byte, 1) == 1) *rest += byte;
  return order;
}

const HostOrder kOrder{.token = "secret",
                       .folder = "/a b",
                       .arguments = {"pretrain", "", "it's\n\"quoted\"", "--x"},
                       .environment = {{"TRIREME_SEED", "4"}, {"EMPTY", ""}, {"EQUALS", "a=b"}}};

TEST(SshOrder, EveryWordComesBackAndWhatFollowsIsLeftToRead) {
  std::string rest;
  const HostOrder back = read_back(write_order(kOrder) + "s", &rest);
  EXPECT_EQ(back.token, kOrder.token);
  EXPECT_EQ(back.folder, kOrder.folder);
  EXPECT_EQ(back.arguments, kOrder.arguments);
  EXPECT_EQ(back.environment, kOrder.environment);
  EXPECT_EQ(rest, "s");
}

TEST(SshOrder, APartOfItOrSomethingElseIsAnError) {
  const std::string whole = write_order(kOrder);
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_THROW(read_back(whole.substr(0, size)), Error) << size;
  EXPECT_THROW(read_back("hello\n"), Error);
  EXPECT_THROW(read_back("99999999\n"), Error);
  EXPECT_THROW(read_back("-1\n"), Error);
}

// The order holds the job's token.
TEST(SshOrder, WhoReadsItLeavesNoCoreDump) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit{};
    getrlimit(RLIMIT_CORE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_CORE, &limit);
    read_back(write_order(kOrder));
    getrlimit(RLIMIT_CORE, &limit);
    _exit(limit.rlim_cur <= 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace trireme::launch
