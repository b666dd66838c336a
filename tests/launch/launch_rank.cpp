// A program that launches itself and, as a rank, does what its arguments say; the tests' only kind of rank.
//
//   launch_rank --launch 2 --out DIR -- '*:print:hello' '1:sleep:50' '1:exit:3'
//   launch_rank --by-ssh PROGRAM            a job on one machine, with PROGRAM as ssh
//
// Each argument after "--" is RANK:ACTION[:TEXT] (RANK "*" means all) and the actions of a rank run in order.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/launch/machines/ssh_start.h"
#include "trireme/launch/supervise/launch.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/launch/supervise/worker.h"

namespace launch = trireme::launch;

namespace {

// One write for each line, so that lines of two descriptors cannot mix.
void put(int fd, const std::string& line) {
  if (write(fd, (line + "\n").c_str(), line.size() + 1) < 0) std::_Exit(99);
}

void list_descriptors(const std::string&) {
  std::string open_fds;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] != '.' && fd != dirfd(folder)) open_fds += fmt::format(" {}", fd);
  }
  closedir(folder);
  put(1, fmt::format("descriptors{}", open_fds));
}

void list_cpus(const std::string&) {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  std::string cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus += fmt::format(" {}", cpu);
  }
  put(1, fmt::format("cpus{}", cpus));
}

// A process that has left the rank's session and process group, as a data loader's daemon would.
void leave_grandchild(const std::string&) {
  if (fork() == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    for (;;) pause();
  }
}

// One that belongs to another user.
void leave_grandchild_of_nobody(const std::string&) {
  constexpr uid_t kNobody = 65534;
  if (fork() == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    if (setresuid(kNobody, kNobody, kNobody) != 0) _exit(1);
    put(1, fmt::format("nobody's {}", getpid()));
    for (;;) pause();
  }
  usleep(200'000);
}

// Waits in the kernel, where no signal reaches it, if the file's system does not answer (dead_files.h).
void look_at_file(const std::string& path) {
  signal(SIGALRM, [](int) {});
  ualarm(20'000, 0);
  struct stat about{};
  stat(path.c_str(), &about);
}

void leave_grandchild_that_looks_at_file(const std::string& path) {
  if (fork() == 0) {
    setsid();
    if (fork() != 0) _exit(0);
    put(1, fmt::format("grandchild {}", getpid()));
    look_at_file(path);
    _exit(0);
  }
}

// From then on this process may end its own user's processes only, as one that is not root.
void give_up_killing_others() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  syscall(SYS_capget, &header, data);
  data[0].effective &= ~(1u << CAP_KILL);
  data[0].permitted &= ~(1u << CAP_KILL);
  syscall(SYS_capset, &header, data);
}

void await_stop(const std::string&) {
  launch::install_stop_signal();
  put(1, "ready");
  while (!launch::stop_requested()) usleep(2000);
  put(1, "saved");
  std::exit(launch::kStoppedEarly);
}

// A program that loads for a while before it can take a request to stop.
void await_stop_late(const std::string&) {
  put(1, "loading");
  sigset_t pending;
  do {
    usleep(2000);
    sigpending(&pending);
  } while (!sigismember(&pending, SIGTERM));
  await_stop("");
}

void await_stop_and_name(const std::string&) {
  launch::install_stop_signal();
  put(1, "ready");
  while (!launch::stop_requested()) usleep(2000);
  put(1, fmt::format("{}{}", launch::name_of_stop(launch::stop_signal()),
                     launch::stop_came_from_launcher() ? " from the launcher" : ""));
  std::exit(launch::kStoppedEarly);
}

// Says each request to stop, and goes on.
void tell_requests(const std::string&) {
  signal(SIGTERM, [](int) {
    if (write(1, "asked\n", 6) < 0) std::_Exit(99);
  });
}

void hang(const std::string&) {
  put(1, "ready");
  for (;;) pause();
}

// Ranks wait for each other through files, so that no test depends on how fast a rank starts.
std::string meeting_file(const std::string& name) { return std::getenv("TRIREME_TEST_FOLDER") + ("/" + name); }

void signal_others(const std::string& name) { close(open(meeting_file(name).c_str(), O_CREAT | O_WRONLY, 0600)); }

void await_other(const std::string& name) {
  while (access(meeting_file(name).c_str(), F_OK) != 0) usleep(1000);
}

const std::map<std::string, void (*)(const std::string&), std::less<>> kActions = {
    {"print", [](const std::string& text) { put(1, text); }},
    {"warn", [](const std::string& text) { put(2, text); }},
    {"begun", [](const std::string&) { launch::report_begun(); }},
    {"status", [](const std::string& text) { launch::report_status(text); }},
    {"fail", [](const std::string& text) { launch::report_failure(text); }},
    {"refuse",
     [](const std::string& text) {
       if (!launch::report_refusal(text)) put(2, text);
       std::exit(2);
     }},
    {"timeout", [](const std::string& text) { launch::report_failure(text, launch::Fault::timeout); }},
    {"consequence", [](const std::string& text) { launch::report_failure(text, launch::Fault::lost_peer); }},
    {"sleep", [](const std::string& text) { usleep(1000 * static_cast<unsigned>(std::stoi(text))); }},
    {"exit", [](const std::string& text) { std::exit(std::stoi(text)); }},
    {"exit_before",  // the attempt of this number
     [](const std::string& text) {
       if (launch::rank_environment().restart_count < std::stoi(text)) std::exit(9);
     }},
    {"count_steps",  // another step in each attempt
     [](const std::string&) {
       launch::report_status(fmt::format("step {}", 100 + launch::rank_environment().restart_count));
     }},
    {"kill", [](const std::string& text) { kill(getpid(), std::stoi(text)); }},
    {"abort", [](const std::string&) { std::abort(); }},
    {"ignore_term",
     [](const std::string&) {
       signal(SIGTERM, SIG_IGN);
       signal(SIGUSR1, SIG_IGN);
     }},
    {"tty", [](const std::string&) { put(1, isatty(1) ? "a terminal" : "no terminal"); }},
    {"env",
     [](const std::string& name) {
       const char* value = std::getenv(name.c_str());
       put(1, fmt::format("{}={}", name, value == nullptr ? "(unset)" : value));
     }},
    {"allocate",
     [](const std::string& text) {
       const auto bytes = static_cast<std::size_t>(std::stol(text)) << 20;
       volatile char* memory = static_cast<char*>(std::malloc(bytes));
       for (std::size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
     }},
    {"whoami",
     [](const std::string&) {
       const auto me = launch::rank_environment();
       put(1, fmt::format("rank {} of {}, local {} of {}, store {}, socket {}", me.global_rank, me.world_size,
                          me.local_rank, me.local_world_size, me.hosts_store() ? "host" : "client",
                          me.store_fd >= 0 ? "inherited" : "none"));
     }},
    {"fds", list_descriptors},
    {"cpus", list_cpus},
    {"mark", signal_others},
    {"await", await_other},
    {"grandchild", leave_grandchild},
    {"grandchild_look", leave_grandchild_that_looks_at_file},
    {"look", look_at_file},
    {"pid", [](const std::string&) { put(1, fmt::format("pid {}", getpid())); }},
    {"await_stop", await_stop},
    {"tell_requests", tell_requests},
    {"hang", hang},
    {"await_stop_late", await_stop_late},
    {"await_stop_and_name", await_stop_and_name},
    {"grandchild_of_nobody", leave_grandchild_of_nobody},
};

int run_rank(const std::vector<std::string>& script) {
  const bool waits = std::any_of(script.begin(), script.end(),
                                 [](const std::string& step) { return step.ends_with(":await_stop_late"); });
  if (!waits) launch::unblock_stop_signals();
  const std::string rank = std::to_string(launch::rank_environment().global_rank);
  for (const auto& step : script) {
    const auto first = step.find(':'), second = step.find(':', first + 1);
    const auto who = step.substr(0, first), action = step.substr(first + 1, second - first - 1);
    if (who != "*" && who != rank) continue;
    kActions.at(action)(second == std::string::npos ? "" : step.substr(second + 1));
  }
  return 0;
}

int run_launcher(const std::vector<std::string>& arguments) {
  launch::LaunchOptions options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& flag = arguments[i];
    if (flag == "--") {
      options.arguments.assign(arguments.begin() + static_cast<long>(i) + 1, arguments.end());
      break;
    }
    if (flag == "--launch") options.num_ranks = std::stoi(arguments[++i]);
    if (flag == "--out") options.out_dir = arguments[++i];
    if (flag == "--exe") options.executable = arguments[++i];
    if (flag == "--grace") options.grace = std::chrono::milliseconds(std::stoi(arguments[++i]));
    if (flag == "--threads") options.threads_per_rank = std::stoi(arguments[++i]);
    if (flag == "--link") options.log_link = arguments[++i];
    if (flag == "--show") options.log_ranks.push_back(std::stoi(arguments[++i]));
    if (flag == "--restarts") options.max_restarts = std::stoi(arguments[++i]);
    if (flag == "--end-fd") options.end_fd = std::stoi(arguments[++i]);
    if (flag == "--asked") {  // to stop, before it has begun
      launch::install_stop_signal();
      raise(SIGTERM);
    }
    if (flag == "--oversubscribe") options.oversubscribe = true;
    if (flag == "--tells-begin") options.tells_begin = true;
    if (flag == "--machines") options.nodes = {.count = std::stoi(arguments[++i]), .rank = 1, .master_port = 29555};
    if (flag == "--saves-not") options.saves = false;
    if (flag == "--no-cap-kill") give_up_killing_others();
    if (flag == "--no-pin") options.pin = false;
    if (flag == "--quiet") options.quiet = true;
    if (flag == "--hint") options.failure_hint = [hint = arguments[++i]] { return hint; };
  }
  return launch::launch_ranks(options);
}

int run_by_ssh(const std::string& ssh) {
  return launch::start_by_ssh({.hosts = {{.name = "far", .order = {}}}, .ssh = ssh, .program = "trireme"});
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.size() == 2 && arguments[0] == "--by-ssh") return run_by_ssh(arguments[1]);
    return !arguments.empty() && arguments[0] == "--launch" ? run_launcher(arguments) : run_rank(arguments);
  } catch (const trireme::UsageError& error) {
    launch::report_failure(error.what());
    put(2, fmt::format("error: {}", error.what()));
    return 2;
  }
}
