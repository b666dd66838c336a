#include "trireme/train/prompt_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/file.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "tests/data/temporary_folder.h"
#include "trireme/base/files.h"

namespace trireme::train {
namespace {

using namespace std::chrono_literals;

TEST(ResultFile, ASignalDoesNotEndTheWaitForAnotherProcessLock) {
  const data::TemporaryFolder folder;
  const auto path = folder / "texts.jsonl";
  const base::FileDescriptor others = base::open_file(path, O_RDWR | O_CREAT);
  ASSERT_EQ(::flock(others.get(), LOCK_EX), 0);
  struct sigaction before{}, handler{};
  handler.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR2, &handler, &before), 0);
  std::atomic<bool> is_open = false;
  std::jthread waits([&] {
    const ResultFile file(path, "{}", true);
    is_open = true;
  });
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(20ms);
    ::pthread_kill(waits.native_handle(), SIGUSR2);
  }
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(is_open);
  ::flock(others.get(), LOCK_UN);
  waits.join();
  EXPECT_TRUE(is_open);
  ::sigaction(SIGUSR2, &before, nullptr);
}

}  // namespace
}  // namespace trireme::train
