// A full disk: a tmpfs of a few MiB, which only root may mount.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <regex>

#include "fixtures.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/verify.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

class DiskFull : public testing::Test {
 protected:
  void SetUp() override {
    if (::mount("tmpfs", scratch_.path().c_str(), "tmpfs", 0, "size=8m") != 0) {
      GTEST_SKIP() << "a small tmpfs cannot be mounted here (" << std::strerror(errno)
                   << "); run as root to test a full disk";
    }
    mounted_ = true;
  }
  void TearDown() override {
    if (mounted_) ::umount2(scratch_.path().c_str(), MNT_DETACH);
  }

  /// Saves and gives the error; checks that it has the numbers and that the older checkpoint is untouched.
  void expect_refused(int64_t step, int64_t scale, const std::function<void(int, SaveRequest&)>& change = {}) {
    std::string error = "no error";
    try {
      save_sample(out(), step, 2, scale, change);
    } catch (const CheckpointError& caught) {
      error = caught.what();
    }
    EXPECT_TRUE(std::regex_search(error, std::regex("the disk is full, [0-9,]{7,} bytes needed, [0-9,]+ bytes? free")))
        << error;
    EXPECT_TRUE(verify(out() / "step-00000001").problems.empty());
    EXPECT_EQ(find_latest(out()), out() / "step-00000001");
    for (const auto& entry : fs::directory_iterator(out())) EXPECT_EQ(entry.path().filename(), "step-00000001");
  }

  fs::path out() const { return scratch_ / "out"; }
  ScratchFolder scratch_;
  bool mounted_ = false;
};

TEST_F(DiskFull, IsRefusedBeforeWritingWithTheNumbers) {
  save_sample(out(), 1, 2, 100);
  expect_refused(2, 1000);
}

TEST_F(DiskFull, ThatFillsUpInMidSaveIsRefusedToo) {
  save_sample(out(), 1, 2, 100);
  expect_refused(2, 200, [&](int rank, SaveRequest& request) {
    request.progress_after = std::chrono::milliseconds(0);
    request.progress = [&, rank](const SaveProgress& progress) {
      // Tensor files have their space; what is left for the manifest goes to somebody else.
      if (rank != 0 || std::string(progress.phase) != "checksum" || fs::exists(scratch_ / "other")) return;
      create_file(scratch_ / "other", fs::space(scratch_.path()).available);
    };
  });
}

}  // namespace
}  // namespace trireme::checkpoint
