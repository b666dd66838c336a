#include "trireme/launch/identity/rank_setup.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/flight_file.h"
#include "trireme/launch/identity/openmp_wait.h"
#include "trireme/launch/identity/start_time.h"
#include "trireme/store/server.h"
#include "trireme/store/token.h"

namespace trireme::launch {
namespace {
// Makes the heap keep the pages of large tensors outside the plan. By default glibc maps and unmaps every block above
// 32 MiB anew, and each page fault costs microseconds.
constexpr const char* kHeapSettings =
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=2147483648";

bool same_file(const std::string& a, const char* b) {
  struct stat of_a{}, of_b{};
  return stat(a.c_str(), &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}
}  // namespace

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::vector<std::string> as_entries(const std::map<std::string, std::string>& variables) {
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(fmt::format("{}={}", name, value));
  return entries;
}

MeetingPoint::MeetingPoint(Reach reach, int wanted_port) try
    : fd(store::listen_at(reach == Reach::this_host ? "127.0.0.1" : "0.0.0.0", wanted_port)) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port = ntohs(address.sin_port);
} catch (const Error& error) {
  if (wanted_port == 0) throw;
  throw UsageError(fmt::format(
      "{}; the ranks meet there: choose another --launch.master_port, the same on every machine", error.what()));
}

MeetingPoint::MeetingPoint(const Nodes& nodes) : MeetingPoint() {
  if (nodes.count == 1) return;
  fd = base::FileDescriptor(nodes.store_fd);
  port = nodes.master_port;
}

std::string new_job_id() { return store::draw_token().substr(0, 16); }

std::vector<std::string> rank_variables(const LaunchOptions& options, int local_rank, int restart_count,
                                        const std::string& launcher_id, const MeetingPoint& meeting_point,
                                        int report_fd, int token_fd, int threads_per_rank) {
  auto variables = own_environment();
  for (const auto& [name, value] : options.environment) variables[name] = value;

  // Variables of another launcher, about another job, must not reach the ranks.
  std::erase_if(variables, [](const auto& variable) { return variable.first.starts_with("TORCHELASTIC_"); });
  for (const char* name :
       {"TRIREME_STORE_FD", "TRIREME_TOKEN_FD", "TRIREME_RESTART_COUNT", "TRIREME_RUN", "TRIREME_LOCK_FD"})
    variables.erase(name);

  const auto text_of = [](int number) { return std::to_string(number); };
  const Nodes& nodes = options.nodes;
  const int rank = nodes.rank * options.num_ranks + local_rank;
  variables["RANK"] = text_of(rank);
  variables["LOCAL_RANK"] = text_of(local_rank);
  variables["WORLD_SIZE"] = text_of(nodes.count * options.num_ranks);
  variables["LOCAL_WORLD_SIZE"] = text_of(options.num_ranks);
  variables["NODE_RANK"] = variables["GROUP_RANK"] = text_of(nodes.rank);
  variables["MASTER_ADDR"] = nodes.master_address;
  variables["MASTER_PORT"] = text_of(meeting_point.port);
  variables["TRIREME_JOB_ID"] = nodes.job_id.empty() ? launcher_id : nodes.job_id;
  variables["TRIREME_LAUNCHER_ID"] = launcher_id;
  variables["TRIREME_STARTED_NS"] =
      start_variable(restart_count > 0 ? std::chrono::steady_clock::now() : process_start());
  if (restart_count > 0) variables["TRIREME_RESTART_COUNT"] = text_of(restart_count);
  variables["TORCHELASTIC_RESTART_COUNT"] = text_of(restart_count);  // programs that torchrun starts read it
  if (!nodes.run.empty()) variables["TRIREME_RUN"] = nodes.run;
  variables["TRIREME_REPORT_FD"] = text_of(report_fd);
  if (options.lock_fd >= 0) variables["TRIREME_LOCK_FD"] = text_of(options.lock_fd);
  if (token_fd >= 0) variables["TRIREME_TOKEN_FD"] = text_of(token_fd);
  if (!options.out_dir.empty()) variables["TRIREME_FLIGHT_FOLDER"] = base::flight_folder(options.out_dir).string();
  if (rank == 0) variables["TRIREME_STORE_FD"] = text_of(meeting_point.fd.get());
  if (options.threads_per_rank > 0 || variables["OMP_NUM_THREADS"].empty()) {
    variables["OMP_NUM_THREADS"] = text_of(threads_per_rank);
    if (options.threads_per_rank > 0 || !variables.contains("MKL_NUM_THREADS"))
      variables["MKL_NUM_THREADS"] = text_of(threads_per_rank);
  }
  const auto is_set = [&](std::string_view name) { return variables.contains(std::string(name)); };
  if (std::ranges::none_of(kWaitNames, is_set)) variables.emplace(kSpinName, kSpinCount);
  variables.emplace("GLIBC_TUNABLES", kHeapSettings);
  variables.emplace("TORCH_CPP_LOG_LEVEL", "ERROR");  // silences c10d's warnings about names of peers

  return as_entries(variables);
}

Program find_program(const LaunchOptions& options) {
  constexpr const char* kThisProgram = "/proc/self/exe";
  if (!options.executable.empty()) {
    if (access(options.executable.c_str(), X_OK) != 0)
      throw UsageError(fmt::format("cannot run {}: {}", options.executable, std::strerror(errno)));
    return {options.executable, options.executable};
  }
  char target[4096];
  const auto length = readlink(kThisProgram, target, sizeof target);
  const std::string path = length > 0 ? std::string(target, static_cast<std::size_t>(length)) : kThisProgram;
  // The real path, because `top` shows the file's name; the link if the file was replaced since this process started.
  return {same_file(path, kThisProgram) ? path : kThisProgram, path};
}

}  // namespace trireme::launch
