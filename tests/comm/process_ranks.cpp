#include "process_ranks.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

#include "trireme/comm/c10d_store.h"

extern char** environ;

namespace trireme::comm::testing {

namespace {

struct Child {
  pid_t pid;
  int output;  // read end of its stdout and stderr
};

Child start(const ProcessRanks& options, int rank, const StoreHandle& server) {
  std::vector<std::string> variables;
  for (char** v = environ; *v; ++v) variables.push_back(*v);
  const auto set = [&](std::string name, const std::string& value) { variables.push_back(name.append(value)); };
  set("TRIREME_COMM_RANK=", std::to_string(rank));
  set("TRIREME_COMM_SIZE=", std::to_string(options.size));
  set("TRIREME_COMM_PORT=", std::to_string(server.port));
  set("TRIREME_COMM_TOKEN=", server.token);
  set("TRIREME_COMM_BACKEND=", options.backend);
  set("TRIREME_COMM_PART=", options.part);
  set("OMP_NUM_THREADS=", "1");
  std::vector<char*> environment;
  for (std::string& v : variables) environment.push_back(v.data());
  environment.push_back(nullptr);

  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 2);
  std::string program = TRIREME_COMM_RANK_PROGRAM;
  char* arguments[] = {program.data(), nullptr};
  Child child{-1, pipe_ends[0]};
  const int error = posix_spawn(&child.pid, program.c_str(), &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_ends[1]);
  if (error != 0) throw std::runtime_error("cannot start " + program);
  return child;
}

}  // namespace

std::vector<ProcessRank> run_process_ranks(const ProcessRanks& options) {
  const auto server = open_store({.is_server = true});
  std::vector<Child> children;
  for (int rank = 0; rank < options.size; ++rank) children.push_back(start(options, rank, server));
  std::vector<ProcessRank> ranks(options.size);
  for (int rank = 0; rank < options.size; ++rank) {
    char buffer[4096];
    for (ssize_t n; (n = read(children[rank].output, buffer, sizeof buffer)) > 0;) ranks[rank].output.append(buffer, n);
    close(children[rank].output);
    int status = 0;
    waitpid(children[rank].pid, &status, 0);
    if (WIFEXITED(status)) ranks[rank].exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) ranks[rank].signal = WTERMSIG(status);
  }
  return ranks;
}

}  // namespace trireme::comm::testing
