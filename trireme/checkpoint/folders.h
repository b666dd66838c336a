// The folders in a run's output folder (out_dir): `step-00000800` is a checkpoint; `.tmp-<label>-<nonce>` is one that
// is being written or deleted.
//
// A checkpoint appears and disappears by one rename, so a reader never sees an incomplete one. The process that works
// in a temporary folder locks it (flock). An unlocked temporary folder belongs to a dead job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme::checkpoint {

/// In the out_dir of a run: its name (train/out_dir.h).
inline constexpr const char* kRunFile = "run.json";

/// "step-00000800"
std::string step_folder_name(int64_t step);

struct StepFolder {
  int64_t step = 0;
  std::filesystem::path path;
};

/// The folders named step-<digits> in `out_dir`, highest step first, with any contents. Empty if there is no out_dir.
std::vector<StepFolder> list_step_folders(const std::filesystem::path& out_dir);

/// The step in a folder's name: 800 for "step-00000800"; nothing for other names.
std::optional<int64_t> step_of(const std::filesystem::path& folder);

/// Removes the folders of TemporaryFolder and remove_checkpoint that no living process has locked. Folders `.tmp-*`
/// with other labels belong to other programs and stay. A folder that cannot be read has none.
/// @returns  whether none was locked
bool remove_leftovers(const std::filesystem::path& out_dir);

/// Errors    CheckpointError if the folder is write-protected for this user, which would leave a part of it
void require_removable(const std::filesystem::path& folder);

/// Makes `folder` disappear by a rename to `.tmp-...`, then deletes it. It is locked all the while.
/// Errors    those of require_removable(), before anything has changed; CheckpointError, FileError
void remove_checkpoint(const std::filesystem::path& folder);

/// The label of a conversion's temporary folder; a save's is step-<digits>.
constexpr const char* kConvertLabel = "convert";

/// A new folder `.tmp-<label>-<nonce>` in `out_dir`, locked during this object's life. Labels are step-... and
/// kConvertLabel, which remove_leftovers knows.
class TemporaryFolder {
 public:
  TemporaryFolder(const std::filesystem::path& out_dir, const std::string& label);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  /// Deletes the folder unless it was published.
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }
  /// Renames the folder to `target` and flushes out_dir. The same rename swaps out an older `target`, which is then
  /// deleted. Without `may_replace` an older one stays, and is an error.
  /// Errors    base::FileError
  void publish(const std::filesystem::path& target, bool may_replace = true);

 private:
  std::filesystem::path path_;
  int lock_ = -1;
};

}  // namespace trireme::checkpoint
