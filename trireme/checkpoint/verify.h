// Reads every byte of a checkpoint and compares it with the manifest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// What verify() found.
struct VerifyReport {
  bool has_manifest = false;
  int64_t files = 0;
  int64_t blocks = 0;
  int64_t bytes = 0;
  std::vector<std::string> problems;    ///< damage: one sentence each, in the order of the files
  std::vector<std::string> unreadable;  ///< files that could not be read because of a system error
  std::string ruined;  ///< how the training had diverged when it saved this (good.h); empty: it had not
};

struct VerifyOptions {
  int threads = 1;
  /// Called about ten times a second from the calling thread.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

/// Reads and compares every block of every file of one checkpoint. Names the file, bytes and tensors of each damaged
/// block. Without a manifest only the headers are checked. Damage is a result here, not an exception.
///
/// Cost      reads all bytes once; 1 MiB of buffer a thread
VerifyReport verify(const std::filesystem::path& path, const VerifyOptions& options = {});

}  // namespace trireme::checkpoint
