#include "trireme/train/ledger_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "trireme/data/sample_stream.h"

namespace trireme::train {
namespace {
namespace fs = std::filesystem;

class OneSample : public data::Dataset {
 public:
  int64_t num_samples() const override { return 1; }
  int64_t sequence() const override { return 1; }
  void sample(int64_t, int64_t, data::SampleView) const override {}
  int64_t supervised_tokens(int64_t, int64_t) const override { return 1; }
  std::vector<data::SampleOrigin> describe(int64_t, int64_t) const override { return {}; }
};

/// No file of this process grows past `bytes`, as on a disk that fills up; in its life only.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST(LedgerFile, ALineThatDoesNotFitIsReportedWithTheSystemsReason) {
  std::string folder = (fs::temp_directory_path() / "trireme-ledger-XXXXXX").string();
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const data::SampleStream samples({{std::make_shared<OneSample>()}}, 1);
  std::string message;
  {
    LedgerFile ledger(folder, 0);
    const FileSizeLimit limit(10);
    errno = ENOTTY;  // of some earlier call
    try {
      ledger.write(1, {}, samples);
    } catch (const base::FileError& error) {
      message = error.what();
    }
  }
  EXPECT_THAT(message, testing::HasSubstr(std::strerror(EFBIG)));
  EXPECT_EQ(base::read_file(fs::path(folder) / "ledger" / "rank0.jsonl"), "{\"step\": 1");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace trireme::train
