#include "trireme/launch/rank_setup.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/flight_file.h"
#include "trireme/launch/openmp_wait.h"
#include "trireme/launch/start_time.h"

namespace trireme::launch {
namespace {

// Large tensors outside the plan come from a heap that keeps its pages: a page fault costs microseconds, and glibc
// otherwise maps and unmaps every block above 32 MiB anew.
constexpr const char* kHeapSettings =
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:glibc.malloc.trim_threshold=2147483648";

bool same_file(const std::string& a, const char* b) {
  struct stat of_a{}, of_b{};
  return stat(a.c_str(), &of_a) == 0 && stat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

}  // namespace

MeetingPoint::MeetingPoint(Reach reach, int wanted_port) {
  fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(reach == Reach::this_host ? INADDR_LOOPBACK : INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(wanted_port));
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  // A port that was named may still be closing after the job before this one.
  const int yes = 1;
  if (fd >= 0 && wanted_port != 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (fd < 0 || bind(fd, generic, size) != 0 || listen(fd, SOMAXCONN) != 0 || getsockname(fd, generic, &size) != 0) {
    const int error = errno;
    hand_over();
    if (wanted_port != 0)
      throw UsageError(
          fmt::format("cannot listen at port {}, where the ranks meet: {}; choose another "
                      "--launch.master_port, the same on every machine",
                      wanted_port, std::strerror(error)));
    throw Error(fmt::format("cannot listen where the ranks meet: {}", std::strerror(error)));
  }
  port = ntohs(address.sin_port);
}

MeetingPoint::MeetingPoint(const Nodes& nodes) : MeetingPoint() {
  if (nodes.count == 1) return;
  hand_over();
  fd = nodes.store_fd;
  port = nodes.master_port;
}

MeetingPoint::~MeetingPoint() { hand_over(); }

void MeetingPoint::hand_over() {
  if (fd >= 0) close(std::exchange(fd, -1));
}

std::string new_job_id() {
  unsigned char bytes[8];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) throw Error("launcher: the kernel gives no random numbers");
  std::string id;
  for (const auto byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

std::vector<std::string> rank_variables(const LaunchOptions& options, int local_rank, int restart_count,
                                        const std::string& launcher_id, const MeetingPoint& meeting_point,
                                        int report_fd, int token_fd, int threads_per_rank) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  for (const auto& [name, value] : options.environment) variables[name] = value;

  // Another launcher's words about another job must not be taken for ours.
  std::erase_if(variables, [](const auto& variable) { return variable.first.starts_with("TORCHELASTIC_"); });
  variables.erase("TRIREME_STORE_FD");
  variables.erase("TRIREME_TOKEN_FD");
  variables.erase("TRIREME_RESTART_COUNT");
  variables.erase("TRIREME_RUN");
  variables.erase("TRIREME_LOCK_FD");

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
  if (!nodes.run.empty()) variables["TRIREME_RUN"] = nodes.run;
  variables["TRIREME_REPORT_FD"] = text_of(report_fd);
  if (options.lock_fd >= 0) variables["TRIREME_LOCK_FD"] = text_of(options.lock_fd);
  if (token_fd >= 0) variables["TRIREME_TOKEN_FD"] = text_of(token_fd);
  if (!options.out_dir.empty()) variables["TRIREME_FLIGHT_FOLDER"] = base::flight_folder(options.out_dir).string();
  if (rank == 0) variables["TRIREME_STORE_FD"] = text_of(meeting_point.fd);
  if (options.threads_per_rank > 0 || !variables.contains("OMP_NUM_THREADS")) {
    variables["OMP_NUM_THREADS"] = text_of(threads_per_rank);
    if (options.threads_per_rank > 0 || !variables.contains("MKL_NUM_THREADS")) {
      variables["MKL_NUM_THREADS"] = text_of(threads_per_rank);
    }
  }
  const auto is_set = [&](std::string_view name) { return variables.contains(std::string(name)); };
  if (std::none_of(kWaitNames.begin(), kWaitNames.end(), is_set)) variables.emplace(kSpinName, kSpinCount);
  variables.emplace("GLIBC_TUNABLES", kHeapSettings);
  variables.emplace("TORCH_CPP_LOG_LEVEL", "ERROR");  // c10d's remarks on names of peers and the like

  std::vector<std::string> result;
  for (const auto& [name, value] : variables) result.push_back(fmt::format("{}={}", name, value));
  return result;
}

Program find_program(const LaunchOptions& options) {
  constexpr const char* kThisProgram = "/proc/self/exe";
  if (!options.executable.empty()) {
    if (access(options.executable.c_str(), X_OK) != 0) {
      throw UsageError(fmt::format("cannot run {}: {}", options.executable, std::strerror(errno)));
    }
    return {options.executable, options.executable};
  }
  char target[4096];
  const auto length = readlink(kThisProgram, target, sizeof target);
  const std::string path = length > 0 ? std::string(target, static_cast<std::size_t>(length)) : kThisProgram;
  // By its real path, for `top` shows the file's name; by the link if the file was replaced since we started.
  return {same_file(path, kThisProgram) ? path : kThisProgram, path};
}

}  // namespace trireme::launch
