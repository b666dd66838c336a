// `trireme bench scaling`: runs bench train as a child process, once for each number of ranks.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/bench/commands.h"
#include "trireme/bench/machine.h"
#include "trireme/bench/measure.h"
#include "trireme/bench/scaling.h"
#include "trireme/launch/supervise/spawn.h"

namespace trireme::bench {
namespace {
namespace fs = std::filesystem;

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Runs this program with `arguments`; what it prints goes to `log`.
int run_child(std::vector<std::string> arguments, const fs::path& log) {
  const base::FileDescriptor out = base::open_file(log, O_WRONLY | O_CREAT | O_TRUNC);
  launch::SpawnRequest request{.executable = fs::read_symlink("/proc/self/exe").string(),
                               .environment = own_environment(),
                               .stdout_fd = out.get(),
                               .stderr_fd = out.get()};
  request.arguments = {request.executable};
  request.arguments.insert(request.arguments.end(), arguments.begin(), arguments.end());
  sigprocmask(SIG_SETMASK, nullptr, &request.signal_mask);
  return wait_for(launch::spawn_rank(request));
}

// If the child refused its settings, its message is passed on.
void check_exit(int code, int64_t ranks, const fs::path& log) {
  if (code == 0) return;
  std::string text = base::read_file(log);
  text.erase(text.find_last_not_of('\n') + 1);
  if (code == 2) throw UsageError(text);
  throw Error(fmt::format("bench train with {} failed with exit code {}; its output is in {}",
                          base::plural(ranks, "rank"), code, log.string()));
}

ScalingRun run_train(const Settings& settings, std::span<const std::string> arguments, int64_t ranks) {
  const fs::path folder = fs::path(settings.out_dir) / fmt::format("{}-ranks", ranks);
  fs::create_directories(folder);
  const fs::path json = folder / "train.json", log = folder / "train.log";
  fs::remove(json);
  const int64_t threads = settings.launch.threads_per_rank.value_or(1);
  std::vector<std::string> words = {"bench", "train"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::pair<std::string, std::string> own[] = {{"devices", std::to_string(ranks)},
                                                     {"launch.threads_per_rank", std::to_string(threads)},
                                                     {"bench.warmup", std::to_string(settings.bench.warmup)},
                                                     {"bench.steps", std::to_string(settings.bench.steps)},
                                                     {"bench.json", json.string()},
                                                     {"out_dir", folder.string()}};
  for (const auto& [key, value] : own) {
    words.push_back("--" + key);
    words.push_back(value);
  }
  check_exit(run_child(words, log), ranks, log);
  ScalingRun run = parse_scaling_run(base::read_file(json), json.string());
  run.threads_per_rank = threads;
  return run;
}

}  // namespace

int bench_scaling(const Settings& settings, std::span<const std::string> arguments, const std::string& command) {
  const std::vector<int64_t> counts = settings.bench.ranks.value_or(std::vector<int64_t>{1, 2, 4});
  Report report = new_report("scaling", command);
  std::vector<ScalingRun> runs;
  {
    Progress progress("bench scaling");
    for (const int64_t ranks : counts) {
      progress.step(std::ssize(runs) + 1, std::ssize(counts), base::plural(ranks, "rank"));
      runs.push_back(run_train(settings, arguments, ranks));
    }
  }
  const std::vector<ScalingPoint> points = scaling_points(std::move(runs), usable_cores());
  add_rows(report, settings.model.name, points);
  deliver(report, settings);
  const fs::path picture = settings.bench.picture.value_or((fs::path(settings.out_dir) / "scaling.svg").string());
  base::write_file_atomic(picture, scaling_svg(fmt::format("{} on {}, {}", settings.model.name, report.processor,
                                                           base::plural(report.cores, "core")),
                                               points));
  fmt::print("picture  {}\n", picture.string());
  return 0;
}

}  // namespace trireme::bench
