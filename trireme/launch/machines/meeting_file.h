// How ranks get their meeting address and their token (the job's secret) if the launcher gives them neither. Rank 0
// draws a token, listens, and writes host, port and token to a file in out_dir that only its owner can read. The others
// wait for the file. This is used with srun, mpirun and torchrun, and between machines that each have a launcher.
//
// The file's name contains the job's name. An old file of a dead job with the same name does no harm: this job's rank 0
// refuses its token, and the rank that used it reads the file again (store/client.h).
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "trireme/launch/identity/environment.h"

namespace trireme::launch {

struct MeetingOptions {
  std::filesystem::path out_dir;
  std::optional<std::string> token_file = {};  ///< holds the token; if the address is known too, no file is written
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  ///< long: rank 0 may read all data first
  std::chrono::milliseconds patience_when_stopped = std::chrono::seconds(5);  ///< see stop_signal.h
  std::string without_file = {};  ///< the error if the file does not appear; empty: that rank 0 has not come
};

/// Fills in master_address, master_port, token and, on rank 0, store_fd of `environment`. Ranks of one host meet at
/// 127.0.0.1. Ranks of several hosts meet at the master's address if it is known, else at rank 0's own address, and at
/// the master's port if that is free. The destructor deletes rank 0's file.
/// Cost      the other ranks look every 20 ms; after two seconds one line says what they wait for
/// Says      what is doubtful about the address (doubt_about), and waits all the same
/// Errors    UsageError if the launcher gave the job no name or an IPv6 address, out_dir cannot be written, or the
///           token file is refused;
///           Error if rank 0's file does not appear within the timeout; Stopped if a stop is requested meanwhile and
///           rank 0 does not come soon
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
