// Decides which checkpoints are good. All that chooses, keeps or lists checkpoints uses this one rule (--resume,
// generate, evaluate, convert, `trireme checkpoint`, save.keep_last).
//
// A good checkpoint is complete, and its training had not diverged. A training that diverged saves complete checkpoints
// too. Their manifests mark them as ruined; they are kept, but never count as the newest good one. Nor do those that a
// run left behind when it went on from an older checkpoint: they belong to another history. Weights alone, as
// `checkpoint consolidate` writes them, are no checkpoint of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::checkpoint {

struct Verdict {
  enum class Kind {
    good,
    damaged,  ///< its bytes differ from those that were saved, or it has no manifest
    ruined,  ///< complete, but the training had diverged
    left_behind,  ///< complete, but later than the checkpoint from which a run of the folder went on
    weights_alone,  ///< complete, but without a run's state, so that no run can go on from it
    unreadable  ///< a system error prevents reading it, so its state is unknown
  };
  Kind kind = Kind::good;
  std::string problem;  ///< one sentence; empty for a good one

  bool good() const { return kind == Kind::good; }
};

/// Good means here: the manifest is valid and has no mark, every file in it exists with its full size, and the
/// checksums of small files and headers match. Tensors' data are not read; loading or verify() does that.
///
/// Cost      reads the small files and headers
Verdict verdict_of(const std::filesystem::path& folder);

/// A checkpoint that was skipped because it is not good.
struct PassedOver {
  std::filesystem::path path;
  Verdict verdict;
};

/// The newest good checkpoint in a run's folder, or nothing. Newer ones that are not good are added to `passed_over`.
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& out_dir,
                                                 std::vector<PassedOver>* passed_over = nullptr);

/// What a user means who names a folder: its newest good checkpoint, or, if it has none, its newest weights alone, or
/// the folder itself. Warns of each newer checkpoint that is passed over, once in a process, and of ranks on the first:
/// commands ask several times. A launcher has warned for its ranks (kToldVariable).
/// Errors    UnreadableError: a newer one cannot be read, and may be the newest good one
std::filesystem::path newest_or_itself(const std::filesystem::path& folder);

/// Warns that a checkpoint which somebody has named is marked as ruined, as often as newest_or_itself() warns. All that
/// reads weights by such a name calls this with the manifest's mark; without a mark it does nothing.
void warn_if_ruined(const std::filesystem::path& folder, const std::string& why);

/// The variable that tells ranks of which checkpoints their launcher has warned, and its value; empty: of none.
constexpr const char* kToldVariable = "TRIREME_PASSED_OVER";
std::string told_of_passed_over();

/// The newest good checkpoint in the same folder that is older than `folder`.
std::optional<std::filesystem::path> find_older(const std::filesystem::path& folder);

/// Writes into a checkpoint's manifest why it is ruined, atomically. Errors    Error; nothing has changed then
void mark_ruined(const std::filesystem::path& folder, const std::string& why);

/// For a run that goes on at `step` of its own folder: marks the later good ones in `out_dir` as left behind, and takes
/// such a mark from the checkpoint of `step`.
/// @returns  the folders that it marked, the highest step first        Errors    Error; some may be marked then
std::vector<std::filesystem::path> leave_later_behind(const std::filesystem::path& out_dir, int64_t step);

/// Deletes checkpoints older than `step` until `keep_last` good ones are left; the checkpoint of `step` counts. If it
/// is ruined, no good one is deleted; if it is damaged or keep_last < 1, nothing is. Of the ruined ones only the newest
/// stays, and none behind which a good one was saved; those that were left behind go with a good one. Never deletes
/// checkpoints newer than `step`, folders without a manifest or a run's state, and folders that are or contain one of
/// `protected_paths`.
/// @returns  the folders deleted
std::vector<std::filesystem::path> keep_last_checkpoints(const std::filesystem::path& out_dir, int64_t step,
                                                         int keep_last,
                                                         std::span<const std::filesystem::path> protected_paths = {});

}  // namespace trireme::checkpoint
