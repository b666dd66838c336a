#include "trireme/rewards/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/child_process.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/data/show.h"

namespace trireme::rewards {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostOutput = 1 << 20;  ///< for the answers to one prompt
constexpr size_t kShownBytes = 60;
constexpr std::chrono::milliseconds kLook{100};  ///< how often the program is looked at while it is silent
constexpr std::chrono::milliseconds kGrace{500};  ///< to end by itself when its input ends

std::string line_of(const Answer& answer, int64_t step) {
  const nlohmann::ordered_json line = {{"prompt", answer.prompt},
                                       {"completion", answer.completion},
                                       {"step", step},
                                       {"prompt_number", answer.prompt_number},
                                       {"sample", answer.sample},
                                       {"tokens", answer.tokens},
                                       {"truncated", answer.is_truncated},
                                       {"row", *answer.row}};
  return base::json_text(line) + "\n";
}

/// The program has ended; it may have been killed.
struct Ended : Failure {
  using Failure::Failure;
};

/// It took more time than it has.
struct Late : Failure {
  using Failure::Failure;
};

/// A program that hangs would cost the whole time for each prompt.
constexpr int kMostLate = 3;

}  // namespace

class ProgramReward::Process {
 public:
  Process(const std::string& file, const RewardSettings& settings) try
      : words_(*settings.command),
        timeout_(settings.command_timeout),
        child_({.file = file, .words = words_, .memory_limit = settings.command_memory.value_or(0), .is_read = true}) {
  } catch (const Failure&) {
    throw;
  } catch (const Error& error) {
    throw Failure(fmt::format("reward.command {} {}", fmt::join(*settings.command, " "), error.what()));
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() { child_.end(has_failed_ ? std::chrono::milliseconds(0) : kGrace); }

  Scores score(std::span<const Answer> answers, int64_t step, const GivesUp& gives_up) {
    std::string text;
    for (const Answer& answer : answers) text += line_of(answer, step);
    const auto late = Clock::now() + timeout_;
    size_t sent = 0, read = 0;
    if (has_scored_) {  // what came late would count as these answers' rewards
      take_output();
      require_nothing_more();
    }
    Scores scores;
    while (scores.size() < answers.size()) {
      if (gives_up && gives_up()) fail("is not waited for any more, because the run stops");
      if (Clock::now() > late)
        fail<Late>(fmt::format("gave {} of {} rewards within {:g} s; allow more with reward.command_timeout",
                               scores.size(), answers.size(), double(timeout_.count()) / 1000));
      const bool has_gone = child_.has_ended();  // before the last look at what it has printed
      pollfd both[] = {{child_.output(), POLLIN, 0}, {sent < text.size() ? child_.input() : -1, POLLOUT, 0}};
      poll(both, 2, has_gone ? 0 : static_cast<int>(kLook.count()));
      if (both[0].revents == POLLHUP && !has_gone) usleep(2000);  // it has closed its output, and lives
      if (sent < text.size() && both[1].revents != 0) {
        const ssize_t n = send(child_.input(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (n > 0) sent += static_cast<size_t>(n);
        if (n < 0 && errno != EAGAIN && errno != EINTR) sent = text.size();  // it reads no more, and may still answer
      }
      read += take_output();
      if (read > kMostOutput)
        fail(fmt::format("printed more than {} for {}; it must print one number a line, and nothing else",
                         base::human_bytes(kMostOutput), base::plural(std::ssize(answers), "answer")));
      take_lines(scores, answers.size());
      if (has_gone && scores.size() < answers.size())
        fail<Ended>(child_.status() == base::ChildProcess::kCannotStart
                        ? std::string("cannot be started; look at its first line and its rights")
                        : fmt::format("{} after {} of {} rewards; what it printed to standard error may say why",
                                      base::text_of_ending(child_.status()), scores.size(), answers.size()));
    }
    require_nothing_more();
    has_scored_ = true;
    return scores;
  }

 private:
  static constexpr std::string_view kOneNumber = "it must print one number, or null, for each line that it reads";

  template <class Kind = Failure>
  [[noreturn]] void fail(const std::string& what) {
    has_failed_ = true;
    throw Kind(fmt::format("reward.command {} {}", fmt::join(words_, " "), what));
  }

  // A surplus line that comes late counts as the next answers' first reward. So nobody knows whose rewards the last
  // ones were, and the run must not learn from them.
  void require_nothing_more() {
    if (!rest_.empty())
      fail<Error>(fmt::format("printed \"{}\" after the last reward, so rewards may be those of other answers; {}",
                              shown(rest_), kOneNumber));
  }

  static std::string shown(const std::string& text) {
    return data::visible(text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...");
  }

  size_t take_output() {
    char bytes[1 << 14];
    size_t all = 0;
    for (ssize_t n; all <= kMostOutput && (n = ::read(child_.output(), bytes, sizeof bytes)) > 0;
         all += static_cast<size_t>(n))
      rest_.append(bytes, static_cast<size_t>(n));
    return all;
  }

  void take_lines(Scores& scores, size_t wanted) {
    size_t begin = 0;
    for (size_t end; scores.size() < wanted && (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = rest_.substr(begin, end - begin);
      const nlohmann::json value = base::parse_json_if_sound(line);
      if (!value.is_number() && !value.is_null())
        fail(fmt::format("printed \"{}\" as reward {} of {}; {}", shown(line), scores.size() + 1, wanted, kOneNumber));
      scores.push_back(value.is_null() ? std::nullopt : std::optional(value.get<double>()));
    }
    rest_.erase(0, begin);
  }

  const std::vector<std::string>& words_;
  std::chrono::milliseconds timeout_;
  base::ChildProcess child_;
  bool has_failed_ = false, has_scored_ = false;
  std::string rest_;  ///< printed, without the lines that were taken
};

ProgramReward::ProgramReward(const RewardSettings& settings) : settings_(settings) {
  const std::string& program = settings.command->front();
  const auto file = base::find_program_file(program);
  if (!file && base::is_file(program))
    throw UsageError(
        fmt::format("reward.command: {0} may not be executed (chmod +x {0}); or name its interpreter before it, as in "
                    "[python3, {0}]",
                    program));
  if (!file)
    throw UsageError(
        fmt::format("reward.command: there is no program {} that may be executed; give its path, or a name "
                    "on PATH, as in [python3, judge.py]",
                    program));
  file_ = file->string();
}

ProgramReward::~ProgramReward() = default;

const std::string& ProgramReward::name() const {
  static const std::string kName = "command";
  return kName;
}

Scores ProgramReward::score(std::span<const Answer> answers, int64_t step, const GivesUp& gives_up) {
  for (bool again = false;; again = true) {
    if (!process_) process_ = std::make_unique<Process>(file_, settings_);
    try {
      Scores scores = process_->score(answers, step, gives_up);
      late_ = 0;
      return scores;
    } catch (const Ended&) {
      process_.reset();
      if (again) throw;
    } catch (const Late& late) {
      process_.reset();
      if (++late_ == kMostLate) throw Error(fmt::format("{} ({} prompts in a row)", late.what(), late_));
      throw;
    } catch (const Failure&) {
      process_.reset();
      throw;
    }
  }
}

}  // namespace trireme::rewards
