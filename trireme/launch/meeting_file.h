// Where the ranks of a job meet when their launcher names no place (srun, mpirun): rank 0 listens at a port that the
// kernel chose and writes host and port to a file in out_dir, which all ranks see; the others wait for it. The file
// carries the job's name, which is new for every start, so nobody takes an older job's for his own.
#pragma once

#include <chrono>
#include <filesystem>

#include "trireme/launch/environment.h"

namespace trireme::launch {

/// Fills in master_address, master_port and, on rank 0, store_fd of `environment`, which has no meeting place. Ranks
/// of one host meet at 127.0.0.1, those of several at rank 0's address.
///
/// Lifetime  rank 0's file goes with the object
/// Cost      others look every 20 ms; after two seconds one line says what is waited for
/// Errors    UsageError where the launcher gave no name for the job, or out_dir cannot be written; Error where
///           rank 0's file does not appear within `timeout`
class MeetingFile {
 public:
  MeetingFile(RankEnvironment& environment, const std::filesystem::path& out_dir, std::chrono::milliseconds timeout);
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

 private:
  void publish(RankEnvironment& environment);
  void wait_for(RankEnvironment& environment, std::chrono::milliseconds timeout) const;

  std::filesystem::path path_;
  bool is_ours_ = false;
};

}  // namespace trireme::launch
