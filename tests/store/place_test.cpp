// The token on its way: by file and by descriptor.
#include "trireme/store/place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <thread>

#include "tests/store/guest.h"

namespace trireme::store::testing {
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
  const Token token = draw_token();
  EXPECT_EQ(read_token_file(file(" " + token + "\n", 0600)), token);
  EXPECT_EQ(read_token_file(file(token, 0400)), token);
  for (const mode_t mode : {0604, 0602, 0620, 0640, 0440, 0644, 0666})
    EXPECT_THAT(complaint([&] { read_token_file(file(token, mode)); }), HasSubstr("others may read or change it"))
        << mode;
  EXPECT_THAT(complaint([&] { read_token_file(file("short", 0600)); }), HasSubstr("32 to 256 characters"));
  EXPECT_THAT(complaint([&] { read_token_file(file(std::string(300, 'x'), 0600)); }),
              HasSubstr("32 to 256 characters"));
  EXPECT_THAT(complaint([&] { read_token_file(folder_ / "absent"); }), HasSubstr("absent"));
}

TEST_F(Files, ATokenThatCanBeGuessedIsRefused) {
  for (const std::string& text : {std::string(64, 'a'), std::string("0123456789abcdef0123456789abcdef"),
                                  std::string("a secret of at least thirty-two characters"),
                                  std::string("correcthorsebatterystaplecorrectly"), std::string(40, '7') + "abcdef01"})
    EXPECT_THAT(complaint([&] { read_token_file(file(text, 0600)); }), HasSubstr("can be guessed")) << text;
  for (int i = 0; i < 200; ++i) {
    const Token token = draw_token().substr(0, 32);
    ASSERT_EQ(read_token_file(file(token, 0600)), token);
  }
  const Token base64 = "MFbz/Ce5s48XVDXxD5WFUHkARvnkWzVq0QLHgZXCSRs=";
  EXPECT_EQ(read_token_file(file(base64, 0600)), base64);
}

// Whoever else can put a file, or a name for one, where it is looked for would choose whom the job believes.
TEST_F(Files, WhatCarriesTrustIsThisUsersAndHasOneName) {
  const Token token = draw_token();
  for (const bool place : {false, true}) {
    const auto read = [&](const fs::path& path) {
      if (place) return complaint([&] { read_place(path); });
      return complaint([&] { read_token_file(path); });
    };
    const fs::path path = file(place ? "host 5 " + token : token, 0600);
    EXPECT_EQ(read(path), "none");
    fs::create_symlink(path, folder_ / "link");
    EXPECT_THAT(read(folder_ / "link"), HasSubstr("is a link"));
    fs::create_hard_link(path, folder_ / "name");
    EXPECT_THAT(read(path), HasSubstr("has 2 names"));
    fs::remove(folder_ / "name");
    fs::remove(folder_ / "link");
    ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
    EXPECT_THAT(read(folder_ / "pipe"), HasSubstr("not a plain file"));
    fs::remove(folder_ / "pipe");
    if (geteuid() != 0) continue;  // only root gives files away
    ASSERT_EQ(chown(path.c_str(), 65534, 65534), 0);
    EXPECT_THAT(read(path), HasSubstr("belongs to user 65534"));
    ASSERT_EQ(chown(path.c_str(), 0, 0), 0);
  }
}

TEST_F(Files, WhoHoldsATokenLeavesNoCoreDump) {
  for (const int way : {0, 1, 2, 3}) {
    const pid_t child = fork();
    if (child == 0) {
      rlimit limit{};
      getrlimit(RLIMIT_CORE, &limit);
      limit.rlim_cur = limit.rlim_max;
      setrlimit(RLIMIT_CORE, &limit);
      const auto descriptor = base::FileDescriptor(memfd_create("token", 0));
      (void)!write(descriptor.get(), kToken.data(), kToken.size());
      const fs::path path =
          file(way == 3 ? "host 5 " + kToken : std::string("5b1c9e0f7a2d48836cf04b9a1e7d25f83b60c4ad"), 0600);
      if (way == 0) draw_token();
      if (way == 1) read_token_file(path);
      if (way == 2) token_from_descriptor(descriptor.get());
      if (way == 3) read_place(path);
      getrlimit(RLIMIT_CORE, &limit);
      _exit(limit.rlim_cur <= 1 ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << way;
  }
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
}  // namespace trireme::store::testing
