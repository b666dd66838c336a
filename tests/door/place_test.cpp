// The token on its way: by file and by descriptor.
#include "trireme/door/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>

#include "tests/door/guest.h"

namespace trireme::door::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  Files() {
    std::string pattern = fs::temp_directory_path() / "trireme-door-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~Files() override { fs::remove_all(folder_); }

  fs::path file(const std::string& text, mode_t mode) const {
    const fs::path path = folder_ / "file";
    std::ofstream(path) << text;
    chmod(path.c_str(), mode);
    return path;
  }

  template <typename F>
  static std::string complaint(F&& f) {
    try {
      f();
      return "none";
    } catch (const Error& error) {
      return error.what();
    }
  }

  fs::path folder_;
};

TEST_F(Files, TokensAreAllDifferent) {
  std::set<Token> drawn;
  for (int i = 0; i < 100; ++i) drawn.insert(draw_token());
  EXPECT_EQ(drawn.size(), 100U);
  EXPECT_EQ(drawn.begin()->size(), 64U);
}

TEST_F(Files, ATokenFileIsReadOnlyWhereItIsASecret) {
  EXPECT_EQ(read_token_file(file(" " + kToken + "\n", 0600)), kToken);
  EXPECT_EQ(read_token_file(file(kToken, 0440)), kToken);
  for (const mode_t mode : {0604, 0602, 0620, 0644, 0666})
    EXPECT_THAT(complaint([&] { read_token_file(file(kToken, mode)); }), HasSubstr("others may read or change it"))
        << mode;
  EXPECT_THAT(complaint([&] { read_token_file(file("short", 0600)); }), HasSubstr("32 to 256 characters"));
  EXPECT_THAT(complaint([&] { read_token_file(file(std::string(300, 'x'), 0600)); }),
              HasSubstr("32 to 256 characters"));
  EXPECT_THAT(complaint([&] { read_token_file(folder_ / "absent"); }), HasSubstr("absent"));
}

TEST_F(Files, ADescriptorGivesTheTokenAsOftenAsAsked) {
  const auto descriptor = token_descriptor(kToken);
  EXPECT_EQ(token_from_descriptor(descriptor.get()), kToken);
  EXPECT_EQ(token_from_descriptor(descriptor.get()), kToken);
  EXPECT_THAT(complaint([] { token_from_descriptor(977); }), HasSubstr("TRIREME_TOKEN_FD=977"));
}

TEST_F(Files, APlaceIsWrittenForItsOwnerAlone) {
  const fs::path path = folder_ / "place";
  EXPECT_EQ(read_place(path), std::nullopt);
  write_place(path, {"host", 5, kToken});
  write_place(path, {"host", 6, kToken});
  EXPECT_EQ(read_place(path), (Place{"host", 6, kToken}));
  struct stat status{};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600U);
  chmod(path.c_str(), 0640);
  EXPECT_THAT(complaint([&] { read_place(path); }), HasSubstr("others may read or change it"));
  EXPECT_THAT(complaint([&] { read_place(file("somewhere 7\n", 0600)); }),
              HasSubstr("does not say where the ranks meet"));
}

TEST_F(Files, WhoTookADeadJobsFileLooksAgain) {
  const fs::path path = folder_ / "place";
  const Store store;
  for (const Place& old : {Place{"127.0.0.1", store.port(), kOtherToken}, Place{"127.0.0.1", 1, kToken}}) {
    write_place(path, old);
    std::jthread writes([&] {
      std::this_thread::sleep_for(50ms);
      write_place(path, {"127.0.0.1", store.port(), kToken});
    });
    Client client({.place = old, .place_file = path, .self = {"job", "rank 7"}, .timeout = 20s});
    EXPECT_EQ(client.add("came", 1), old.port == 1 ? 2 : 1);
  }
}

}  // namespace
}  // namespace trireme::door::testing
