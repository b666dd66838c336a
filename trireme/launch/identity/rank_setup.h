// What a launcher gives its ranks: the meeting point, the job's id, the environment, the program.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/launch/identity/core_share.h"
#include "trireme/launch/supervise/launch.h"

namespace trireme::launch {

/// The variables of this process.
std::map<std::string, std::string> own_environment();

/// "NAME=value" for each variable.
std::vector<std::string> as_entries(const std::map<std::string, std::string>& variables);

/// A socket that listens at `port`.
struct MeetingPoint {
  enum class Reach { this_host, all_hosts };  ///< on 127.0.0.1, or on every interface
  /// Port 0: the kernel chooses.
  /// Errors    UsageError if the port is taken; Error if the system has no socket left
  explicit MeetingPoint(Reach reach = Reach::this_host, int port = 0);
  /// Takes over the socket of `nodes`; makes one for a single machine.
  explicit MeetingPoint(const Nodes& nodes);

  /// Closes the launcher's copy. If rank 0 dies, connections are then refused; otherwise they would wait for ever.
  void hand_over() { fd = {}; }

  base::FileDescriptor fd;
  int port = 0;
};

/// 16 random hexadecimal digits.
std::string new_job_id();

/// The environment of one rank: this process's own, then options.environment, then the rank's own variables.
///
/// `local_rank` counts on this machine. The rank inherits `report_fd` and `token_fd` (-1: none). The job's rank 0 also
/// inherits the meeting point's socket. GLIBC_TUNABLES keeps the value that the user has set; so do OMP_NUM_THREADS and
/// MKL_NUM_THREADS, unless options.threads_per_rank is set.
std::vector<std::string> rank_variables(const LaunchOptions& options, int local_rank, int restart_count,
                                        const std::string& launcher_id, const MeetingPoint& meeting_point,
                                        int report_fd, int token_fd, int threads_per_rank);

/// The file to exec, and the name to show as argv[0].
struct Program {
  std::string path, name;
};
/// Errors    UsageError if the file does not exist or may not be run
Program find_program(const LaunchOptions& options);

}  // namespace trireme::launch
