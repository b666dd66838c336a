#include "trireme/rewards/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

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
constexpr int kCannotStart = 127;
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
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string ending(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

/// The program has ended; it may have been killed.
struct Ended : Failure {
  using Failure::Failure;
};

}  // namespace

class ProgramReward::Process {
 public:
  Process(const std::string& file, const RewardSettings& settings)
      : words_(*settings.command), timeout_(settings.command_timeout) {
    int input[2], output[2];
    // A socket, because writing to a program that has gone would send this process a signal otherwise.
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0)
      fail("cannot be started: no descriptor is left");
    input_ = base::FileDescriptor(input[0]);
    const base::FileDescriptor its_input(input[1]);
    if (pipe2(output, O_CLOEXEC) != 0) fail("cannot be started: no descriptor is left");
    output_ = base::FileDescriptor(output[0]);
    const base::FileDescriptor its_output(output[1]);
    for (const base::FileDescriptor* mine : {&input_, &output_}) fcntl(mine->get(), F_SETFL, O_NONBLOCK);
    std::vector<char*> arguments;
    for (const std::string& word : words_) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const rlim_t memory = static_cast<rlim_t>(settings.command_memory.value_or(0));
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) become(file.c_str(), arguments.data(), its_input.get(), its_output.get(), memory, parent);
    if (pid_ < 0) fail(fmt::format("cannot be started: {}", std::strerror(errno)));
    setpgid(pid_, pid_);  // parent and child both do this; the later call fails harmlessly
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  ~Process() {
    if (pid_ <= 0) return;
    shutdown(input_.get(), SHUT_RDWR);
    const auto end = Clock::now() + (has_failed_ ? std::chrono::milliseconds(0) : kGrace);
    while (!has_ended() && Clock::now() < end) usleep(2000);
    kill(-pid_, SIGKILL);
    if (!ended_) waitpid(pid_, nullptr, 0);
  }

  Scores score(std::span<const Answer> answers, int64_t step) {
    std::string text;
    for (const Answer& answer : answers) text += line_of(answer, step);
    const auto late = Clock::now() + timeout_;
    size_t sent = 0, read = 0;
    Scores scores;
    while (scores.size() < answers.size()) {
      if (Clock::now() > late)
        fail(fmt::format("gave {} of {} rewards within {:g} s; allow more with reward.command_timeout", scores.size(),
                         answers.size(), double(timeout_.count()) / 1000));
      const bool has_gone = has_ended();  // before the last look at what it has printed
      pollfd both[] = {{output_.get(), POLLIN, 0}, {sent < text.size() ? input_.get() : -1, POLLOUT, 0}};
      poll(both, 2, has_gone ? 0 : static_cast<int>(kLook.count()));
      if (both[0].revents == POLLHUP && !has_gone) usleep(2000);  // it has closed its output, and lives
      if (sent < text.size() && both[1].revents != 0) {
        const ssize_t n = send(input_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (n > 0) sent += static_cast<size_t>(n);
      }
      read += take_output();
      if (read > kMostOutput)
        fail(fmt::format("printed more than {} for {}; it must print one number a line, and nothing else",
                         base::human_bytes(kMostOutput), base::plural(std::ssize(answers), "answer")));
      take_lines(scores, answers.size());
      if (has_gone && scores.size() < answers.size())
        fail<Ended>(status_ == kCannotStart << 8
                        ? std::string("cannot be started; look at its first line and its rights")
                        : fmt::format("{} after {} of {} rewards; what it printed to standard error may say why",
                                      ending(status_), scores.size(), answers.size()));
    }
    if (!rest_.empty()) fail(fmt::format("printed \"{}\" after the last reward; {}", shown(rest_), kOneNumber));
    return scores;
  }

 private:
  static constexpr std::string_view kOneNumber = "it must print one number, or null, for each line that it reads";

  [[noreturn]] static void become(const char* file, char** arguments, int input, int output, rlim_t memory,
                                  pid_t parent) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kCannotStart);  // it died before the line above took effect
    dup2(input, 0);
    dup2(output, 1);
    if (memory > 0) {
      const rlimit limit{memory, memory};
      setrlimit(RLIMIT_AS, &limit);
    }
    syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
    for (const int number : {SIGTERM, SIGINT, SIGPIPE, SIGUSR1, SIGTTOU, SIGXFSZ}) signal(number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execv(file, arguments);
    _exit(kCannotStart);
  }

  template <class Kind = Failure>
  [[noreturn]] void fail(const std::string& what) {
    has_failed_ = true;
    throw Kind(fmt::format("reward.command {} {}", fmt::join(words_, " "), what));
  }

  static std::string shown(const std::string& text) {
    return data::visible(text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...");
  }

  bool has_ended() {
    if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
    return ended_;
  }

  size_t take_output() {
    char bytes[1 << 14];
    size_t all = 0;
    for (ssize_t n; all <= kMostOutput && (n = ::read(output_.get(), bytes, sizeof bytes)) > 0;
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
  base::FileDescriptor input_, output_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false, has_failed_ = false;
  std::string rest_;  ///< printed, without the lines that were taken
};

ProgramReward::ProgramReward(const RewardSettings& settings) : settings_(settings) {
  const std::string& program = settings.command->front();
  const auto file = base::find_program_file(program);
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

Scores ProgramReward::score(std::span<const Answer> answers, int64_t step) {
  for (bool again = false;; again = true) {
    if (!process_) process_ = std::make_unique<Process>(file_, settings_);
    try {
      return process_->score(answers, step);
    } catch (const Ended&) {
      process_.reset();
      if (again) throw;
    } catch (const Failure&) {
      process_.reset();
      throw;
    }
  }
}

}  // namespace trireme::rewards
