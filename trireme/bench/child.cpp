// Child processes of benchmarks.
#include "trireme/bench/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "trireme/base/child_process.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/launch/supervise/spawn.h"

namespace trireme::bench {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> own_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

int exit_code_of(pid_t child) {
  const int status = base::wait_for_end(child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

void run_child(const std::vector<std::string>& arguments, const fs::path& log, const std::string& what) {
  const base::FileDescriptor out = base::open_file(log, O_WRONLY | O_CREAT | O_TRUNC);
  launch::SpawnRequest request{.executable = fs::read_symlink("/proc/self/exe").string(),
                               .environment = own_environment(),
                               .stdout_fd = out.get(),
                               .stderr_fd = out.get()};
  request.arguments = {request.executable};
  request.arguments.insert(request.arguments.end(), arguments.begin(), arguments.end());
  sigprocmask(SIG_SETMASK, nullptr, &request.signal_mask);
  const int code = exit_code_of(launch::spawn_rank(request));
  if (code == 0) return;
  std::string text = base::read_file(log);
  text.erase(text.find_last_not_of('\n') + 1);
  if (code == 2) throw UsageError(text);  // its settings' mistake is told as its own
  throw Error(fmt::format("{} failed with exit code {}; its output is in {}", what, code, log.string()));
}

}  // namespace trireme::bench
