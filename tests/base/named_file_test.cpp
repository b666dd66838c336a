#include "trireme/base/named_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "trireme/base/files.h"

namespace trireme::base {
namespace {

namespace fs = std::filesystem;

class NamedFile : public ::testing::Test {
 protected:
  NamedFile() : folder_(fs::temp_directory_path() / ("trireme-named-" + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "elsewhere");
  }
  ~NamedFile() override { fs::remove_all(folder_); }

  const fs::path folder_;
};

TEST_F(NamedFile, ALinkStaysAndTheFileBehindItIsWritten) {
  fs::create_symlink("elsewhere/result.json", folder_ / "result.json");
  fs::create_symlink(folder_ / "result.json", folder_ / "second");
  for (const char* name : {"result.json", "second"}) {  // the file behind them is there only the second time
    write_named_file(folder_ / name, name);
    EXPECT_TRUE(fs::is_symlink(folder_ / name));
    EXPECT_FALSE(fs::is_symlink(folder_ / "elsewhere/result.json"));
    EXPECT_EQ(read_file(folder_ / "elsewhere/result.json"), name);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "elsewhere"), fs::directory_iterator()), 1);
}

TEST_F(NamedFile, AFileOfItsOwnIsReplaced) {
  write_named_file(folder_ / "plain", "first");
  write_named_file(folder_ / "plain", "second");
  EXPECT_EQ(read_file(folder_ / "plain"), "second");
  EXPECT_EQ(named_file("plain"), "plain");
}

TEST_F(NamedFile, ACircleOfLinksLeadsNowhere) {
  fs::create_symlink("b", folder_ / "a");
  fs::create_symlink("a", folder_ / "b");
  EXPECT_TRUE(fs::is_symlink(named_file(folder_ / "a")));
}

}  // namespace
}  // namespace trireme::base
