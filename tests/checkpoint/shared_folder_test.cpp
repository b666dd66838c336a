#include "trireme/checkpoint/shared_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <mutex>

#include "fixtures.h"
#include "thread_ranks.h"
#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

std::vector<std::string> errors_on(int ranks, const std::function<fs::path(int rank)>& folder_of) {
  std::mutex mutex;
  std::vector<std::string> errors;
  run_ranks(ranks, [&](comm::Communicator& world) {
    try {
      check_shared_folder(folder_of(world.rank()), world);
    } catch (const CheckpointError& error) {
      const std::lock_guard lock(mutex);
      errors.emplace_back(error.what());
    }
  });
  return errors;
}

TEST(SharedFolder, IsMadeAndLeftEmpty) {
  const ScratchFolder scratch;
  EXPECT_THAT(errors_on(3, [&](int) { return scratch / "a/b"; }), testing::IsEmpty());
  EXPECT_TRUE(fs::is_empty(scratch / "a/b"));
}

TEST(SharedFolder, ThatOneRankSeesElsewhereIsAnErrorNamingHostRankAndFolder) {
  const ScratchFolder scratch;
  fs::create_directories(scratch / "1");
  const auto errors = errors_on(3, [&](int rank) { return scratch / (rank == 1 ? "1" : "0"); });
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  ASSERT_EQ(errors.size(), 3u) << "every rank refuses";
  EXPECT_THAT(errors,
              testing::Each(HasSubstr("rank 1 on host " + std::string(host) + " does not see the file that rank 0")));
  EXPECT_THAT(errors, testing::Each(HasSubstr((scratch / "1").string())));
  EXPECT_TRUE(fs::is_empty(scratch / "0"));
}

TEST(SharedFolder, ThatCannotBeMadeIsOneSentence) {
  const ScratchFolder scratch;
  overwrite(scratch / "file", "x");
  const auto errors = errors_on(2, [&](int) { return scratch / "file/out"; });
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_THAT(errors[0], HasSubstr((scratch / "file/out").string()));
}

}  // namespace
}  // namespace trireme::checkpoint
