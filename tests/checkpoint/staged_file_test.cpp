// What StagedFile writes is what was put, whether or not the file system has direct access, whatever the edges.
#include "trireme/checkpoint/staged_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "trireme/checkpoint/disk.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

struct Bytes {
  int64_t begin, end;
};

class StagedFiles : public ::testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(StagedFiles, HoldWhatWasPut) {
  const auto [folder, direct] = GetParam();
  const fs::path path = fs::path(folder) / ("trireme-staged-" + std::to_string(::getpid()));
  constexpr int64_t kBytes = 3 * StageBuffer::kBytes + 12'345;
  std::mt19937_64 random(7);
  StageBuffer buffer;
  for (int round = 0; round < 5; ++round) {
    fs::remove(path);
    create_file(path, kBytes);
    std::string expected(kBytes, '\0');
    // Two writers with alternating runs, as two ranks have: their runs meet inside pages.
    std::vector<Bytes> runs;
    for (int64_t at = 0; at < kBytes;) {
      const int64_t most = random() % 3 == 0 ? 6'000 : 5'000'000;
      const int64_t end = std::min(kBytes, at + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most)));
      runs.push_back({at, end});
      at = end;
    }
    for (const size_t writer : {0, 1}) {
      StagedFile file(base::open_file(path, O_RDWR), path, buffer, direct);
      for (size_t r = writer; r < runs.size(); r += 2) {
        for (int64_t at = runs[r].begin; at < runs[r].end;) {
          const int64_t window = StageBuffer::kBytes - at % StageBuffer::kBytes;
          const int64_t count = std::min({window, runs[r].end - at, 1 + static_cast<int64_t>(random() % 900'000)});
          for (std::byte& b : file.room(at, count)) {
            const auto value = static_cast<uint8_t>((static_cast<uint64_t>(at + round) * 0x9E3779B97F4A7C15) >> 56);
            b = static_cast<std::byte>(value);
            expected[static_cast<size_t>(at++)] = static_cast<char>(value);
          }
        }
      }
      file.flush();
    }
    EXPECT_TRUE(base::read_file(path) == expected) << "round " << round;
  }
  fs::remove(path);
}

// /dev/shm is memory; the other folder is on a disk, as a rule with direct access.
INSTANTIATE_TEST_SUITE_P(FileSystems, StagedFiles,
                         ::testing::Combine(::testing::Values("/dev/shm", "/var/tmp"), ::testing::Bool()));

}  // namespace
}  // namespace trireme::checkpoint
