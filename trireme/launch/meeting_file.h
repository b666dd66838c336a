// Where the ranks of a job meet, and the token by which they know each other, when their launcher does not say: rank 0
// draws a token, listens, and writes host, port and token to a file in out_dir that only its owner can read; the others
// wait for it. So it is with srun, mpirun and torchrun, and between machines with launchers of their own.
//
// The file carries the job's name. One that a dead job of that name left behind leads nowhere: its token is refused by
// this job's rank 0, and whoever took it looks again (door/client.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include "trireme/launch/environment.h"

namespace trireme::launch {

struct MeetingOptions {
  std::filesystem::path out_dir;
  std::optional<std::string> token_file = {};  ///< holds the token; no file is written where the place is known too
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  ///< rank 0 may read all of the data before it comes
  std::chrono::milliseconds patience_when_stopped = std::chrono::seconds(5);  ///< see stop_signal.h
};

/// Fills in master_address, master_port, token and, on rank 0, store_fd of `environment`. Ranks of one host meet at
/// 127.0.0.1, those of several at the master's address, else rank 0's own; at the master's port where it is free.
///
/// Lifetime  rank 0's file goes with the object
/// Cost      others look every 20 ms; after two seconds one line says what is waited for
/// Errors    UsageError where the launcher gave no name for the job, out_dir cannot be written, or the token file is
///           bad; Error where rank 0's file does not appear within the timeout; Stopped where a stop is
///           requested meanwhile and rank 0 does not come soon
class MeetingFile {
 public:
  MeetingFile(RankEnvironment& environment, const MeetingOptions& options);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

 private:
  void publish(const RankEnvironment& environment);
  void wait_for(RankEnvironment& environment, const MeetingOptions& options) const;

  std::filesystem::path path_;
  bool is_ours_ = false;
};

}  // namespace trireme::launch
