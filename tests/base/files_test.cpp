#include "trireme/base/files.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "trireme/base/mapped_ranges.h"
#include "trireme/base/not_text.h"

namespace trireme::base {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "trireme-files-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_;
};

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(Files, AWrittenFileReadsBackAndReplacesTheOld) {
  const std::string binary("a\0b\n", 4);
  write_file_atomic(folder_ / "x", "old and longer");
  write_file_atomic(folder_ / "x", binary);
  EXPECT_EQ(read_file(folder_ / "x"), binary);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1) << "a temporary file stayed";
}

TEST_F(Files, AFailedReplacementLeavesTheOldFileAndNoOther) {
  fs::create_directory(folder_ / "x");  // a folder cannot be replaced by a file
  EXPECT_THROW(write_file_atomic(folder_ / "x", "new"), FileError);
  EXPECT_TRUE(fs::is_directory(folder_ / "x"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(Files, ErrorsNameThePathAndTheReason) {
  try {
    read_file(folder_ / "missing.txt");
    FAIL() << "no error";
  } catch (const FileError& error) {
    EXPECT_EQ(error.code, ENOENT);
    EXPECT_EQ(error.path, folder_ / "missing.txt");
    EXPECT_THAT(error.what(), testing::StartsWith("cannot open " + (folder_ / "missing.txt").string()));
    EXPECT_THAT(error.what(), testing::EndsWith(std::strerror(ENOENT)));
  }
  EXPECT_THROW(read_file(folder_), FileError);
  EXPECT_THROW(MappedFile{folder_}, FileError);
  EXPECT_THROW(fsync_directory(folder_ / "missing"), FileError);
}

TEST_F(Files, AFullDiskIsSaidInPlainWords) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this machine";
  const FileDescriptor full = open_file("/dev/full", O_WRONLY);
  try {
    write_at(full, std::as_bytes(std::span("text", 4)), 0, "/dev/full");
    FAIL() << "no error";
  } catch (const FileError& error) {
    EXPECT_EQ(error.code, ENOSPC);
    EXPECT_THAT(error.what(), testing::HasSubstr("the disk is full"));
  }
}

TEST_F(Files, AMappedFileShowsItsBytesAndSurvivesAMove) {
  write_file_atomic(folder_ / "x", "hello");
  MappedFile first(folder_ / "x");
  MappedFile second = std::move(first);
  EXPECT_EQ(second.size_bytes(), 5);
  EXPECT_EQ(std::memcmp(second.bytes().data(), "hello", 5), 0);
  EXPECT_TRUE(first.bytes().empty());  // NOLINT(bugprone-use-after-move): what a move leaves is the subject
}

TEST_F(Files, AnEmptyFileMapsToNothing) {
  std::ofstream(folder_ / "empty").close();
  EXPECT_EQ(MappedFile(folder_ / "empty").size_bytes(), 0);
}

TEST_F(Files, ReadingPastTheEndSaysWhere) {
  write_file_atomic(folder_ / "x", "hello");
  const FileDescriptor file = open_file(folder_ / "x", O_RDONLY);
  std::array<std::byte, 4> bytes{};
  read_at(file, bytes, 1, "x");
  EXPECT_EQ(std::memcmp(bytes.data(), "ello", 4), 0);
  try {
    read_at(file, bytes, 3, "x");
    FAIL() << "no error";
  } catch (const FileError& error) {
    EXPECT_STREQ(error.what(), "cannot read x: it ends at byte 5, 2 bytes too early");
  }
}

TEST_F(Files, FreeSpaceIsThatOfTheNearestExistingParent) {
  EXPECT_GT(free_disk_bytes(folder_ / "not" / "yet" / "there"), 0);
}

TEST_F(Files, AFolderThatIsALinkIsNotTakenForOneOfItsOwn) {
  fs::create_directory(folder_ / "elsewhere");
  fs::create_directory_symlink(folder_ / "elsewhere", folder_ / "link");
  make_real_folder(folder_ / "new");
  make_real_folder(folder_ / "new");
  EXPECT_TRUE(fs::is_directory(folder_ / "new"));
  try {
    make_real_folder(folder_ / "link");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("link: it is a symbolic link"));
  }
}

TEST_F(Files, WhatIsMadeOfFilesIsReadableByWhomAllOfThemAre) {
  const auto mode_of = [&](std::vector<std::pair<std::string, int>> files) {
    std::vector<fs::path> paths;
    for (const auto& [name, mode] : files) {
      paths.push_back(folder_ / name);
      std::ofstream(paths.back()) << "text";
      ::chmod(paths.back().c_str(), static_cast<mode_t>(mode));
    }
    return readable_as(paths);
  };
  ::chmod(folder_.c_str(), 0755);
  EXPECT_EQ(mode_of({}), 0644U);
  EXPECT_EQ(mode_of({{"a", 0644}, {"b", 0666}}), 0644U);
  EXPECT_EQ(mode_of({{"a", 0644}, {"b", 0640}}), 0640U);
  EXPECT_EQ(mode_of({{"a", 0600}, {"b", 0644}}), 0600U);
  ::chmod(folder_.c_str(), 0700);
  EXPECT_EQ(mode_of({{"a", 0644}}), 0600U) << "nobody else may enter the folder";
  ::chmod(folder_.c_str(), 0744);
  const std::vector<fs::path> both = {folder_, folder_ / "a"};
  EXPECT_EQ(readable_as(both), 0600U) << "all may list the folder, and nobody else may enter it";
}

TEST_F(Files, ANewNameIsTakenOnce) {
  std::ofstream(folder_ / "a") << "1", std::ofstream(folder_ / "b") << "2";
  EXPECT_THAT(message_of([&] { rename_to_new(folder_ / "a", folder_ / "b"); }),
              testing::HasSubstr("b exists already: another process has made it"));
  EXPECT_EQ(read_file(folder_ / "b"), "2");
  rename_to_new(folder_ / "a", folder_ / "c");
  EXPECT_EQ(read_file(folder_ / "c"), "1");
  EXPECT_FALSE(fs::exists(folder_ / "a"));
}

TEST(ExitCode, OfADiskThatTakesNoMoreIsNotThatOfARefusal) {
  for (const int code : {ENOSPC, EDQUOT, EFBIG, EIO}) EXPECT_EQ(exit_code_of(code), 74) << code;
  for (const int code : {0, ENOENT, EACCES, EROFS}) EXPECT_EQ(exit_code_of(code), 2) << code;
}

TEST_F(Files, WhatIsNoFileIsRefusedAtOnceAndNeverWaitedFor) {
  const fs::path pipe = folder_ / "pipe", inner = folder_ / "inner", port = folder_ / "socket";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_directory(inner);
  const FileDescriptor listener(::socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  port.string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const std::pair<fs::path, const char*> cases[] = {
      {pipe, "it is a named pipe, not a file"}, {inner, "it is a folder, not a file"}, {"/dev/null", "it is a device"}};
  for (const auto& [path, what] : cases) {
    EXPECT_THAT(message_of([&] { open_file(path, O_RDONLY); }), testing::HasSubstr(what));
    EXPECT_THAT(message_of([&] { read_file(path); }), testing::HasSubstr(path.string()));
    EXPECT_THAT(message_of([&] { MappedFile{path}; }), testing::HasSubstr(what));
  }
  EXPECT_THAT(message_of([&] { open_file(port, O_RDONLY); }), testing::HasSubstr("cannot open"));
  std::thread writer([&] { std::ofstream(pipe) << "through a pipe"; });
  EXPECT_EQ(read_file_or_pipe(pipe), "through a pipe") << "the user's own paths may be pipes";
  writer.join();
}

TEST_F(Files, ASideFileThatIsTooLargeIsRefusedBeforeItIsRead) {
  const fs::path path = folder_ / "config.json";
  std::ofstream(path) << "{}";
  fs::resize_file(path, uintmax_t{1} << 40);  // holes cost no disk
  EXPECT_THAT(message_of([&] { read_side_file(path); }), testing::HasSubstr("holds more than 256 MiB"));
}

TEST_F(Files, TheParentOfABareNameIsThisFolder) {
  EXPECT_EQ(parent_of("out"), ".");
  EXPECT_EQ(parent_of("out/"), ".");
  EXPECT_EQ(parent_of("a/out/"), "a");
  EXPECT_EQ(parent_of("/out"), "/");
}

TEST_F(Files, AMappedFileThatIsCutWhileItIsReadIsNamed) {
  constexpr size_t kBytes = 1 << 20;
  write_file_atomic(folder_ / "cut", std::string(kBytes, 'x'));
  const auto read_cut = [&] {
    tell_faults_in_mappings();
    MappedFile mapped(folder_ / "cut");
    const MappedFile moved = std::move(mapped);
    fs::resize_file(folder_ / "cut", 0);
    const volatile std::byte* last = &moved.bytes()[kBytes - 1];
    return *last;
  };
  EXPECT_EXIT(read_cut(), testing::ExitedWithCode(kStorageFailed), "error: .*cut became shorter while it was read");
}

TEST(NotText, FirstBytesTellAndTheWayOutIsNamed) {
  using namespace std::string_literals;
  const auto said = [](std::string_view begin, const char* name = "d/a.gz") {
    try {
      require_text(begin, name);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(said("\x1F\x8B\x08"),
            "d/a.gz is compressed (gzip) and is not read as text: unpack it first (gunzip -k d/a.gz)");
  EXPECT_THAT(said("\x28\xB5\x2F\xFD"), testing::HasSubstr("(unzstd d/a.gz)"));
  EXPECT_THAT(said("\xFD"
                   "7zXZ\0"s),
              testing::HasSubstr("(xz)"));
  EXPECT_THAT(said("BZh9\x31\x41\x59\x26\x53\x59"), testing::HasSubstr("(bzip2)"));
  EXPECT_THAT(said("PK\x03\x04"), testing::HasSubstr("is a zip archive"));
  const std::string unread =
      " is Parquet and is not read as text: write it as JSONL first (python3 -c \"import sys, pandas; "
      "pandas.read_parquet(sys.argv[1]).to_json('NEW.jsonl', orient='records', lines=True)\" ";
  EXPECT_THAT(said("PAR1", "d/a.bin"), testing::StartsWith("d/a.bin" + unread + "d/a.bin)"));
  EXPECT_THAT(said("PAR1", "d/a.bin"), testing::EndsWith("; texts to pretrain on need a name that ends in .parquet"));
  EXPECT_THAT(said("PAR1", "d/a.parquet"), testing::StartsWith("d/a.parquet" + unread + "d/a.parquet)"));
  EXPECT_THAT(said("PAR1", "d/a.parquet"), testing::EndsWith("d/a.parquet)")) << "it has that name";
  EXPECT_THAT(said("\x1F\x8B", "a b.gz"), testing::HasSubstr("(gunzip -k 'a b.gz')"));
  EXPECT_THAT(said("\x40\x01\0\0\0\0\0\0{\"a\""s), testing::HasSubstr("holds weights (safetensors)"));
  EXPECT_THAT(said("\xFF\xFE"
                   "a\0"s),
              testing::HasSubstr("is UTF-16 and"));
  EXPECT_THAT(said("\xFE\xFF\0a"s), testing::HasSubstr("is UTF-16 and"));
  EXPECT_THAT(said("\x93NUMPY\x01"), testing::HasSubstr("is an array of NumPy"));
  EXPECT_THAT(said("ARROW1"), testing::HasSubstr("is Arrow"));
  EXPECT_THAT(said("\xFF\xFF\xFF\xFF"), testing::HasSubstr("is Arrow"));
  EXPECT_THAT(
      said("\x12\x00\x34\x01"s, "d/train.bin"),
      testing::StartsWith("d/train.bin holds bytes of value zero and is not read as text: tokens are read from"));
  EXPECT_THAT(said("a\0b\0"s, "d/a.txt"),
              testing::EndsWith("it is no UTF-8 text; convert it first (iconv), or name a file of text"));
  EXPECT_THAT(said("some\0te\0xt."s, "d/a.txt"),
              testing::EndsWith("a text has none; name a file of text, or write it without them"));
  for (const std::string& text :
       {""s, "\xEF\xBB\xBFtext"s, "BZh9 is no code"s, "PK and so on"s, "12345678{}"s, "{\"a\":1}\n{"s,
        "GGUF is a format"s, "\xFF"s, std::string(4096, 'x') + "\0"s, std::string(100, 'x') + "\0"s})
    EXPECT_EQ(said(text), "") << text;
}

}  // namespace
}  // namespace trireme::base
