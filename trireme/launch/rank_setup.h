// What the ranks of a job share and what each one gets: the meeting point, the job's name, the environment.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/launch/core_share.h"
#include "trireme/launch/launch.h"

namespace trireme::launch {

/// A socket that listens at `port`, or where that is 0 at one that the kernel chose.
struct MeetingPoint {
  enum class Reach { this_host, all_hosts };  ///< on 127.0.0.1, or on every interface
  /// Errors    UsageError where somebody else has the port; Error when the system has no socket left
  explicit MeetingPoint(Reach reach = Reach::this_host, int port = 0);
  /// Takes over what `nodes` brings along; makes a socket for a single machine.
  explicit MeetingPoint(const Nodes& nodes);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  /// Closes the launcher's copy, so that a dead rank 0 means a refused connection and not an endless queue.
  void hand_over();

  /// The socket is the caller's from now on.
  int release() { return std::exchange(fd, -1); }

  int fd = -1;
  int port = 0;
};

/// 16 random hexadecimal digits.
std::string new_job_id();

/// The environment of one rank: this process' own, then options.environment, then what tells the rank who it is.
///
/// `local_rank` counts on this machine; `report_fd`, `token_fd` (-1: none) and, for the job's rank 0, `store_fd` are
/// inherited descriptors.
/// OMP_NUM_THREADS, MKL_NUM_THREADS (unless options.threads_per_rank is set) and GLIBC_TUNABLES are left alone where
/// the user set them.
std::vector<std::string> rank_variables(const LaunchOptions& options, int local_rank, int restart_count,
                                        const std::string& launcher_id, const MeetingPoint& meeting_point,
                                        int report_fd, int token_fd, int threads_per_rank);

/// The file to exec for `options`, and the name to show as argv[0].
///
/// Errors    UsageError when it does not exist or may not be run
struct Program {
  std::string path, name;
};
Program find_program(const LaunchOptions& options);

}  // namespace trireme::launch
