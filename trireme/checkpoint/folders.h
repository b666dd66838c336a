// The folders of a run's output: `step-00000800` are checkpoints, `.tmp-<label>-<nonce>` are being written or
// deleted.
//
// A checkpoint appears and disappears by one rename, so a reader never sees half of one. A temporary folder is
// locked (flock) by the process that works in it; one without a lock belongs to a dead job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// "step-00000800"
std::string step_folder_name(int64_t step);

struct StepFolder {
  int64_t step = 0;
  std::filesystem::path path;
};

/// The folders named step-<digits> in `out_dir`, newest first, whatever they hold. Empty when there is no out_dir.
std::vector<StepFolder> list_step_folders(const std::filesystem::path& out_dir);

/// The step of a folder named so: 800 for "step-00000800".
std::optional<int64_t> step_of(const std::filesystem::path& folder);

/// Removes the folders named as TemporaryFolder and remove_checkpoint name them that no living process has locked.
/// Other folders that begin with `.tmp-` are somebody else's.
void remove_leftovers(const std::filesystem::path& out_dir);

/// Makes `folder` disappear by a rename to `.tmp-...`, then deletes it.
void remove_checkpoint(const std::filesystem::path& folder);

/// The label of a conversion's temporary folder; a save's is step-<digits>.
constexpr const char* kConvertLabel = "convert";

/// A new folder `.tmp-<label>-<nonce>` in `out_dir`, locked as long as this object lives. remove_leftovers knows
/// the labels step-... and kConvertLabel.
class TemporaryFolder {
 public:
  TemporaryFolder(const std::filesystem::path& out_dir, const std::string& label);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  /// Deletes the folder unless it was published.
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }
  /// Renames it to `target` and flushes out_dir; a checkpoint already there is swapped out in the same rename
  /// and then deleted.
  void publish(const std::filesystem::path& target);

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace trireme::checkpoint
