// The folders around a command's result that were not there. What is empty of them goes with this object: all of them,
// if the command failed.
#pragma once

#include <deque>
#include <filesystem>

namespace trireme::base {

class MadeFolders {
 public:
  MadeFolders() = default;
  MadeFolders(const MadeFolders&) = delete;
  MadeFolders& operator=(const MadeFolders&) = delete;
  ~MadeFolders();

  /// Makes `folder` and what is missing of the folders around it. Errors    std::filesystem::filesystem_error
  void make(const std::filesystem::path& folder);

 private:
  std::deque<std::filesystem::path> innermost_first_;
};

}  // namespace trireme::base
