// Reads every byte of a checkpoint and compares it with the manifest, on as many threads as the machine has cores.
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
  std::vector<std::string>
      problems;  ///< damage: one sentence each, in the order of the files; empty when there is none
  std::vector<std::string> unreadable;  ///< files that the system does not let be read: nobody knows what is in them
  std::string ruined;  ///< why the training that saved it had gone wrong (good.h); empty: it had not
};

struct VerifyOptions {
  int threads = 0;  ///< 0: one a core
  /// Called about ten times a second from the calling thread.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress;
};

/// Reads every block of every file of one checkpoint and compares; names file, bytes and tensors of each damaged one. A
/// folder without a manifest has its headers checked and nothing else. Damage is a result here, not an error.
///
/// Cost      reads all bytes once; 1 MiB of buffer a thread
VerifyReport verify(const std::filesystem::path& path, const VerifyOptions& options = {});

}  // namespace trireme::checkpoint
