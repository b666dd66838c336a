#include "trireme/observe/progress_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <tuple>

namespace trireme::observe {
namespace {

base::StepEvent example() {
  base::StepEvent event;
  event.step = 240;
  event.max_steps = 1000;
  event.loss = 1.4821;
  event.grad_norm = 0.6123;
  event.lr = 1.9e-3;
  event.tokens_per_second = 12430.4;
  event.peak_fraction = 0.708;
  event.rss_bytes = int64_t{412} << 20;
  event.eta_seconds = 161;
  return event;
}

// What a ProgressLine writes, kept in memory.
class Captured {
 public:
  Captured() : file_(open_memstream(&text_, &size_)) {}
  ~Captured() {
    std::fclose(file_);
    std::free(text_);
  }
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {text_, size_};
  }

 private:
  char* text_ = nullptr;
  size_t size_ = 0;
  std::FILE* file_;
};

ProgressLineOptions on_terminal(Captured& out, bool color = false) {
  return {.out = out.file(), .terminal = true, .color = color, .width = 100, .refresh = std::chrono::milliseconds(0)};
}

TEST(FormatProgress, HasTheShapeOfTheManual) {
  EXPECT_EQ(format_progress(example()),
            "step   240/1000  loss 1.482  |g| 0.61  lr 1.9e-03  12,430 tok/s  71 % of peak  412 MiB  eta 2m41s");
}

TEST(FormatProgress, AStepThatLearnsFromNoTokenHasNoLoss) {
  base::StepEvent event = example();
  event.loss.reset();
  EXPECT_TRUE(format_progress(event).starts_with("step   240/1000  loss -  |g| 0.61"));
  event.grad_norm = event.lr = std::nan("");  // an evaluation that is made up in another folder
  EXPECT_TRUE(format_progress(event).starts_with("step   240/1000  loss -  12,430 tok/s"));
}

TEST(FormatProgress, KeepsItsColumnsWhileStepsGrow) {
  auto event = example();
  for (const auto& [step, total, text] : {std::tuple{1, 1000, "step     1/1000  "},
                                          {1000, 1000, "step  1000/1000  "},
                                          {7, 2'000'000, "step       7/2000000  "},
                                          {12, 0, "step    12  "}}) {
    event.step = step;
    event.max_steps = total;
    EXPECT_TRUE(format_progress(event).starts_with(text)) << format_progress(event);
  }
}

TEST(FormatProgress, LeavesOutWhatIsNotKnown) {
  auto event = example();
  event.peak_fraction.reset();
  event.tokens_per_second = 0;
  event.rss_bytes = 0;
  event.eta_seconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(format_progress(event), "step   240/1000  loss 1.482  |g| 0.61  lr 1.9e-03");
  event.val_loss = 1.5;
  event.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(format_progress(event), "step   240/1000  loss nan  val 1.500  |g| 0.61  lr 1.9e-03");
}

TEST(FormatProgress, TellsRewards) {
  auto event = example();
  event.measures = {{"reward", 0.4125}, {"entropy", 1.5}, {"val_reward", 0.52}};
  EXPECT_NE(format_progress(event).find("  loss 1.482  reward 0.412  val reward 0.520  |g| 0.61  "), std::string::npos)
      << format_progress(event);
}

TEST(FormatProgress, DropsFieldsFromTheRightUntilItFits) {
  const std::string whole = format_progress(example());
  EXPECT_EQ(format_progress(example(), static_cast<int>(whole.size())), whole);
  EXPECT_EQ(format_progress(example(), static_cast<int>(whole.size()) - 1),
            "step   240/1000  loss 1.482  |g| 0.61  lr 1.9e-03  12,430 tok/s  71 % of peak  412 MiB");
  EXPECT_EQ(format_progress(example(), 50), "step   240/1000  loss 1.482  |g| 0.61  lr 1.9e-03");
  EXPECT_EQ(format_progress(example(), 1), "step   240/1000  loss 1.482");
  for (int width = 27; width < 120; ++width) {
    const std::string line = format_progress(example(), width);
    EXPECT_LE(line.size(), static_cast<size_t>(width));
    EXPECT_TRUE(whole.starts_with(line));
  }
}

TEST(ProgressLine, IntoAPipeWritesPlainLinesEveryInterval) {
  Captured out;
  {
    ProgressLine line({.out = out.file(), .log_interval = 10});
    auto event = example();
    event.max_steps = 35;
    for (event.step = 1; event.step <= 35; ++event.step) line.step(event);
  }
  std::string expected;
  for (const int step : {10, 20, 30, 35}) {
    auto event = example();
    event.step = step;
    event.max_steps = 35;
    expected += format_progress(event) + "\n";
  }
  EXPECT_EQ(out.text(), expected);
}

TEST(ProgressLine, IntoAPipeTheStepItStoppedAtIsNotLost) {
  Captured out;
  {
    ProgressLine line({.out = out.file(), .log_interval = 100});
    line.step(example());
  }
  EXPECT_EQ(out.text(), format_progress(example()) + "\n");
}

TEST(ProgressLine, OnATerminalOneLineUpdatesAndTheLastStays) {
  Captured out;
  auto event = example();
  {
    ProgressLine line(on_terminal(out));
    line.step(event);
    event.step = 241;
    line.step(event);
  }
  EXPECT_EQ(out.text(), "\r\x1b[K" + format_progress(example()) + "\r\x1b[K" + format_progress(event) + "\r\x1b[K" +
                            format_progress(event) + "\n");
}

TEST(ProgressLine, OnATerminalItStaysBelowTheWidth) {
  Captured out;
  auto options = on_terminal(out);
  options.width = 51;
  ProgressLine(options).step(example());
  EXPECT_EQ(out.text(),
            "\r\x1b[Kstep   240/1000  loss 1.482  |g| 0.61  lr 1.9e-03\r\x1b[K"
            "step   240/1000  loss 1.482  |g| 0.61  lr 1.9e-03\n");
}

TEST(ProgressLine, AnEvaluationStaysOnTheScreen) {
  Captured out;
  auto event = example();
  event.val_loss = 1.5;
  {
    ProgressLine(on_terminal(out)).step(event);
  }
  EXPECT_EQ(out.text(), format_progress(event, 100) + "\n");
}

TEST(ProgressLine, OtherLinesComeAboveIt) {
  Captured out;
  ProgressLine line(on_terminal(out));
  line.step(example());
  line.say("saved out/run/step-000240");
  EXPECT_EQ(out.text(), "\r\x1b[K" + format_progress(example()) + "\r\x1b[Ksaved out/run/step-000240\n");
}

TEST(ProgressLine, PhasesAreShownWhileTheyLastAndToldWhenTheyWereLong) {
  using Kind = base::PhaseEvent::Kind;
  Captured out, pipe;
  {
    ProgressLine line(on_terminal(out));
    line.phase({.kind = Kind::begin, .name = "load data", .detail = "", .seconds = 0});
    line.phase({.kind = Kind::end, .name = "load data", .detail = "", .seconds = 0.1});
    line.phase({.kind = Kind::begin, .name = "save", .detail = "step-000240", .seconds = 0});
    line.phase({.kind = Kind::end, .name = "save", .detail = "step-000240", .seconds = 3});
    ProgressLine piped({.out = pipe.file()});
    piped.phase({.kind = Kind::begin, .name = "save", .detail = "step-000240", .seconds = 0});
    piped.phase({.kind = Kind::end, .name = "save", .detail = "step-000240", .seconds = 3});
  }
  EXPECT_EQ(out.text(), "\r\x1b[Kload data ...\r\x1b[K\r\x1b[Ksave: step-000240 ...\r\x1b[Ksave: step-000240 (3.0s)\n");
  EXPECT_EQ(pipe.text(), "save: step-000240 (3.0s)\n");
}

TEST(ProgressLine, ColourChangesNoCharacterAndMarksALossThatIsNotFinite) {
  Captured plain, colored;
  auto event = example();
  ProgressLine a(on_terminal(plain)), b(on_terminal(colored, true));
  a.step(event);
  b.step(event);
  std::string text = colored.text();
  EXPECT_NE(text.find("\x1b[32mloss 1.482\x1b[0m"), std::string::npos);
  for (const std::string code : {"\x1b[32m", "\x1b[0m"}) text.erase(text.find(code), code.size());
  EXPECT_EQ(text, plain.text());
  event.loss = std::nan("");
  b.step(event);
  EXPECT_NE(colored.text().find("\x1b[31mloss nan\x1b[0m"), std::string::npos);
}

TEST(ProgressLine, AFileIsNoTerminalAndGetsNoColour) {
  std::FILE* file = std::tmpfile();
  const auto options = progress_options_for(file);
  EXPECT_FALSE(options.terminal);
  EXPECT_FALSE(options.color);
  std::fclose(file);
}

// A pseudo-terminal is a terminal.
TEST(ProgressLine, ATerminalGetsColourUnlessNoColorIsSet) {
  const int fd = ::posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(fd, 0);
  std::FILE* terminal = ::fdopen(fd, "w");
  ::setenv("TERM", "xterm", 1);
  ::unsetenv("NO_COLOR");
  EXPECT_TRUE(progress_options_for(terminal).terminal);
  EXPECT_TRUE(progress_options_for(terminal).color);
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_TRUE(progress_options_for(terminal).terminal);
  EXPECT_FALSE(progress_options_for(terminal).color);
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(progress_options_for(terminal).terminal);
  EXPECT_FALSE(progress_options_for(terminal).color);
  std::fclose(terminal);
}

}  // namespace
}  // namespace trireme::observe
