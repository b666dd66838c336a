// ProcessState of supervisor.h.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "trireme/base/error.h"
#include "trireme/base/process.h"
#include "trireme/base/stop_signals.h"
#include "trireme/launch/supervise/processes.h"
#include "trireme/launch/supervise/standard_descriptors.h"
#include "trireme/launch/supervise/supervisor.h"

namespace trireme::launch {
namespace {
bool is_ignored(int number) {
  struct sigaction action{};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}
}  // namespace

ProcessState::ProcessState() {
  fill_standard_descriptors();

  sigset_t ours, blocked;
  sigemptyset(&ours);
  const auto take = [&](int number) {
    if (!is_ignored(number)) sigaddset(&ours, number);  // ignored by nohup or a background shell: stays ignored
  };
  std::ranges::for_each(base::kStopSignals, take);
  take(SIGTSTP);
  blocked = ours;
  sigaddset(&blocked, SIGPIPE);  // if a reader has gone, write() fails instead
  pthread_sigmask(SIG_BLOCK, &blocked, &mask_before_);
  signal_fd_ = base::FileDescriptor(signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signal_fd_.get() < 0) throw Error("launcher: no signalfd: " + base::why_no_descriptor(errno));

  std::vector<ProcessEntry> table(kMaxProcesses);
  table.resize(list_processes(table).value_or(0));
  for (const auto& entry : table)
    if (entry.parent == getpid()) children_before_.push_back(entry.pid);
  prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

ProcessState::~ProcessState() {
  prctl(PR_SET_CHILD_SUBREAPER, was_subreaper_);
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  const timespec now{};
  if (!sigismember(&mask_before_, SIGPIPE)) sigtimedwait(&pipe, nullptr, &now);  // takes a pending one
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

bool ProcessState::had_child(pid_t pid) const {
  return std::ranges::find(children_before_, pid) != children_before_.end();
}

}  // namespace trireme::launch
