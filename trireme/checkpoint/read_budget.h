// How much memory an untrusted file may make its reader ask for: its own size and 64 MiB. Readers charge what they are
// about to allocate, so that a file made to harm is an error before it is a problem.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace trireme::checkpoint {

class ReadBudget {
 public:
  /// `path` names the file, of `bytes` bytes, in messages.
  ReadBudget(int64_t bytes, std::string path) : left_(bytes + (int64_t{62} << 20)), path_(std::move(path)) {}

  /// Errors    CheckpointError when the file asks for more than it may
  void take(int64_t bytes);
  const std::string& path() const { return path_; }

 private:
  int64_t left_;  ///< 2 MiB of the 64 are for what nobody counts: messages, buffers
  std::string path_;
};

/// Parses JSON that nests no deeper than `max_depth`; a key that an object has twice is refused.
///
/// Errors    CheckpointError "<path> is not <what>: ..."
nlohmann::json parse_json(std::string_view text, int max_depth, std::string_view what, ReadBudget& budget);

}  // namespace trireme::checkpoint
