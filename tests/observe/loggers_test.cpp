// What loggers make of clients and files that misbehave. tests/train/loggers.py sees them in runs.
#include "trireme/observe/loggers.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/base/stopwatch.h"
#include "trireme/observe/tensorboard.h"

namespace trireme::observe {
namespace {

sockaddr_in local(uint16_t port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return name;
}

uint16_t free_port() {
  const base::FileDescriptor any(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = local(0);
  socklen_t size = sizeof name;
  EXPECT_EQ(bind(any.get(), reinterpret_cast<const sockaddr*>(&name), size), 0);
  EXPECT_EQ(getsockname(any.get(), reinterpret_cast<sockaddr*>(&name), &size), 0);
  return ntohs(name.sin_port);
}

TEST(CsvLogger, HasPerplexityOnlyOfTokens) {
  for (const bool of_tokens : {true, false}) {
    const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "csv_logger_test" / "metrics.csv";
    CsvLogger(path, 0, {.has_perplexity = of_tokens}).append({.step = 1, .loss = 1, .val_loss = 0.5});
    const std::string columns = base::read_file(path);
    EXPECT_NE(columns.find(",val_loss"), std::string::npos);
    EXPECT_EQ(columns.find(",val_ppl") != std::string::npos, of_tokens);
  }
}

TEST(CsvLogger, ARunThatGoesOnWithOtherRanksCountsOnFromTheLastRow) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "csv_logger_test" / "resumed.csv";
  CsvLogger(path, 0, {.micro_batches = 4, .data_ranks = 2}).append({.step = 10, .tokens = 800, .loss = 1});
  CsvLogger(path, 10, {.micro_batches = 2, .data_ranks = 4}).append({.step = 12, .tokens = 960, .loss = 1});
  const std::string text = base::read_file(path);
  EXPECT_NE(text.find("\n1,40,10,0,0,0,400,800,"), std::string::npos) << text;
  EXPECT_NE(text.find("\n1,44,12,0,0,0,440,960,"), std::string::npos) << text;
}

// A resume that finds all steps done changes nothing.
TEST(CsvLogger, LaterRowsGoWhenTheRunGoesOn) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "csv_logger_test" / "kept.csv";
  {
    CsvLogger all(path, 0, {});
    for (int64_t step = 1; step <= 4; ++step) all.append({.step = step, .loss = 1});
  }
  const std::string before = base::read_file(path);
  {
    CsvLogger(path, 2, {});
  }
  EXPECT_EQ(base::read_file(path), before);
  CsvLogger(path, 2, {}).go_on();
  const std::string after = base::read_file(path);
  EXPECT_TRUE(before.starts_with(after) && after != before) << after;
}

TEST(EventWriter, AResumedRunHasAFileWhenItGoesOn) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "event_writer_test";
  std::filesystem::remove_all(folder);
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator());
  };
  EventWriter resumed(folder, 2);
  resumed.append_text(2, "settings", "seed: 1");
  EXPECT_EQ(files(), 0);
  resumed.go_on();
  EXPECT_EQ(files(), 1);
  const std::string text = base::read_file(std::filesystem::directory_iterator(folder)->path());
  EXPECT_NE(text.find("seed: 1"), std::string::npos);
  EventWriter other(folder, 2);
  other.append({.step = 3, .loss = 1});  // without go_on(), too
  EXPECT_EQ(files(), 2);
}

// Within a second, "9" is less than "96" but not than "144".
TEST(EventWriter, TheFileOfALaterStartIsTheLast) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "event_order_test";
  std::filesystem::remove_all(folder);
  std::string last;
  for (const int64_t resumed_step : {9, 96, 144, 5}) {
    EventWriter(folder, resumed_step).append({.step = resumed_step + 1, .loss = 1});
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    EXPECT_GT(names.back(), last);
    EXPECT_TRUE(names.back().ends_with(fmt::format(".trireme.{}", resumed_step))) << names.back();
    last = names.back();
  }
}

TEST(CsvLogger, AStepWithoutALossHasAnEmptyCell) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "csv_logger_test" / "no_loss.csv";
  CsvLogger(path, 0, {}).append({.step = 1});
  const std::string text = base::read_file(path), row = text.substr(text.find('\n') + 1);
  EXPECT_TRUE(text.starts_with("loss,iter,step,")) << text;
  EXPECT_TRUE(row.starts_with(",") && !row.starts_with(",,")) << text;
}

TEST(CsvLogger, ASecondRowOfTheLastStepReplacesTheFirst) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "csv_logger_test" / "again.csv";
  {
    CsvLogger logger(path, 0, {});
    for (const int64_t step : {1, 2}) logger.append({.step = step, .loss = 1});
  }
  CsvLogger(path, 2, {}).append({.step = 2, .loss = 1, .val_loss = 0.5});
  const std::string text = base::read_file(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;
  EXPECT_NE(text.find("0.5", text.find("\n1,2,2,")), std::string::npos) << text;
}

TEST(CommandLogger, AProgramThatDoesNotReadIsWaitedForOnce) {
  for (const int rows : {1, 5000}) {  // few wait in the socket, many in the logger, too
    std::string said;
    const base::Stopwatch watch;
    {
      CommandLogger logger({"sleep", "60"}, {}, [&](const std::string& line) { said += line; }, [] { return 2.5; });
      for (int i = 0; i < rows; ++i) logger.append({.step = i, .measures = {{"a_number_of_a_long_name", 0.25}}});
    }
    EXPECT_LT(watch.seconds(), 2.5) << said;
    EXPECT_NE(said.find("sleep 60 did not end within 1.5 s of the run and is ended"), std::string::npos) << said;
  }
}

TEST(PrometheusServer, AClientThatAsksByteByByteIsGivenUpSoon) {
  constexpr double kLonger = 6;  // seconds
  const uint16_t port = free_port();
  const base::Stopwatch all;
  {
    PrometheusServer server("127.0.0.1", port);
    const base::FileDescriptor client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in name = local(port);
    ASSERT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    const base::Stopwatch watch;
    while (watch.seconds() < kLonger && send(client.get(), "G", 1, MSG_NOSIGNAL) == 1) poll(nullptr, 0, 100);
    EXPECT_LT(watch.seconds(), kLonger) << "the server still listens to this client";
  }
  EXPECT_LT(all.seconds(), kLonger + 1) << "the end of a run waits for a client";
}

}  // namespace
}  // namespace trireme::observe
