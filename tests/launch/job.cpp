#include "tests/launch/job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "trireme/base/stop_signals.h"

namespace trireme::launch::testing {
namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace

Job::Job(Options options) {
  static int number = 0;
  mark_ = fmt::format("TRIREME_TEST_MARK={}.{}", getpid(), ++number);
  std::string pattern = std::filesystem::temp_directory_path() / "trireme-launch-XXXXXX";
  folder_ = mkdtemp(pattern.data());
  std::vector<std::string> words = {LAUNCH_RANK};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  for (auto& word : words) {
    if (word == "OUT") word = out_dir().string();
  }
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("no process left for a test");
  if (pid_ == 0) {
    // ctest in the background of a shell would hand down "ignored"
    for (const int number : base::kStopSignals) ::signal(number, SIG_DFL);
    const auto open_for = [&](const char* name) {
      return open((folder_ / name).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    };
    dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
    dup2(options.stdout_fd >= 0 ? options.stdout_fd : open_for("out"), 1);
    dup2(open_for("err"), 2);
    if (!options.cgroup_procs.empty()) std::ofstream(options.cgroup_procs) << getpid() << std::flush;
    if (options.extra_fd >= 0) dup2(options.extra_fd, 77);
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS",
                             "MKL_NUM_THREADS", "GLIBC_TUNABLES", "TRIREME_REPORT_FD"}) {
      unsetenv(name);
    }
    const auto equals = mark_.find('=');
    setenv(mark_.substr(0, equals).c_str(), mark_.substr(equals + 1).c_str(), 1);
    setenv("TRIREME_TEST_FOLDER", folder_.c_str(), 1);
    for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    execv(LAUNCH_RANK, arguments.data());
    _exit(126);
  }
}

Job::~Job() {
  if (code_ < 0 && pid_ > 1) {
    send_signal(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const pid_t pid : processes()) send_signal(pid, SIGKILL);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

int Job::wait(std::chrono::milliseconds timeout) {
  int status = 0;
  if (code_ < 0 && eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, timeout)) {
    code_ = code_of(status);
  }
  return code_;
}

void Job::signal(int number) const { send_signal(pid_, number); }

bool Job::wait_for(const std::string& text, int times) const {
  return eventually([&] { return count(out() + err(), text) >= times; });
}

void Job::make(const std::string& name) const { std::ofstream(folder_ / name).flush(); }

void Job::pause_briefly() { usleep(2000); }

std::string Job::out() const { return read_file(folder_ / "out"); }
std::string Job::err() const { return read_file(folder_ / "err"); }
std::string Job::log(int rank) const { return read_file(out_dir() / "logs" / (fmt::format("rank{}.log", rank))); }

std::vector<pid_t> Job::processes() const {
  const std::string variable = fmt::format("{0}{1}{0}", '\0', mark_);
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || pid == getpid()) continue;
    const std::string environment = std::string(1, '\0').append(read_file(entry.path() / "environ"));
    if (environment.find(variable) != std::string::npos) found.push_back(pid);
  }
  return found;
}

pid_t Job::await_guardian(pid_t other) const {
  pid_t found = 0;
  const auto look = [&] {
    for (const pid_t pid : processes()) {
      // The name comes a moment after the fork.
      if (pid != other && read_file(fmt::format("/proc/{}/comm", pid)) == "trireme-guard\n") found = pid;
    }
    return found > 0;
  };
  return eventually(look) ? found : 0;
}

void send_signal(pid_t pid, int number) {
  if (pid <= 1) throw std::invalid_argument(fmt::format("a test wants to signal process {}", pid));
  kill(pid, number);
}

int count(const std::string& in, const std::string& text) {
  int times = 0;
  for (auto at = in.find(text); at != std::string::npos; at = in.find(text, at + text.size())) ++times;
  return times;
}

}  // namespace trireme::launch::testing
