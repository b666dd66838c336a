#include "trireme/observe/work_bar.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <string>

namespace trireme::observe {
namespace {

TEST(WorkBar, SaysHowFarAndHowLong) {
  EXPECT_EQ(work_bar_text("perplexity", 0.5, 8), "perplexity  [##########..........]  50 %  eta 8.0s");
  EXPECT_EQ(work_bar_text("loading", 1, 8), "loading  [####################] 100 %");
  EXPECT_EQ(work_bar_text("loading", -1, 8), "loading  [....................]   0 %");
}

TEST(WorkBar, SaysNothingOfShortWork) {
  std::FILE* file = std::tmpfile();
  {
    WorkBar bar("short", file);
    for (int i = 0; i <= 10; ++i) bar.show(i / 10.0);
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

TEST(Waiting, SaysNothingOfShortWork) {
  std::FILE* file = std::tmpfile();
  {
    const Waiting waiting("short", file);
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

TEST(Waiting, TellsATerminalHowLongItTakes) {
  int reader = -1, terminal = -1;
  ASSERT_EQ(openpty(&reader, &terminal, nullptr, nullptr, nullptr), 0);
  ASSERT_EQ(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
  std::FILE* file = fdopen(terminal, "w");
  std::string shown;
  const auto look = [&] {
    char text[4096];
    for (ssize_t got; (got = read(reader, text, sizeof text)) > 0;) shown.append(text, static_cast<size_t>(got));
  };
  {
    const Waiting waiting("planning", file);
    for (int i = 0; i < 200 && shown.empty(); ++i, look()) usleep(100'000);
  }
  look();
  std::fclose(file);
  close(reader);
  EXPECT_TRUE(shown.starts_with("\r\x1b[Kplanning  ")) << shown;
  EXPECT_TRUE(shown.ends_with("\r\x1b[K")) << shown;
}

// As a terminal or pipe whose reader has gone.
TEST(WorkBar, ALineThatCannotBeWrittenEndsNothing) {
  std::FILE* full = std::fopen("/dev/full", "w");
  if (full == nullptr) GTEST_SKIP() << "no /dev/full on this machine";
  std::setvbuf(full, nullptr, _IONBF, 0);
  LateLine line(full);
  EXPECT_NO_THROW(line.show("working"));
  std::fclose(full);
}

}  // namespace
}  // namespace trireme::observe
