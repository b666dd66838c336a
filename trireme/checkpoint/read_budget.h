// ReadBudget limits the memory for reading an untrusted file to the file's size plus 64 MiB. Readers call take() before
// they allocate, so a malicious file is refused before it does harm.
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

  /// Counts an allocation. Errors    CheckpointError if the file would need more than the budget
  void take(int64_t bytes);
  const std::string& path() const { return path_; }

 private:
  int64_t left_;  ///< 2 of the 64 MiB are for uncounted memory: messages, buffers
  std::string path_;
};

/// Parses JSON. Refuses nesting deeper than `max_depth`, and objects that have a key twice.
///
/// Errors    CheckpointError "<path> is not <what>: ..."
nlohmann::json parse_json(std::string_view text, int max_depth, std::string_view what, ReadBudget& budget);

}  // namespace trireme::checkpoint
