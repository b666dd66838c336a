// Which checkpoints are good: the one rule that everybody goes by who chooses, keeps or lists them (--resume, generate,
// evaluate, convert, `trireme checkpoint`, save.keep_last).
//
// A good checkpoint is whole and was saved by a training that went well. Training that blew up saves numbers too, with
// right checksums; such a save is marked as ruined in its manifest, and is kept, but never taken for the newest good
// one.
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
    damaged,  ///< its bytes are not those that were saved, or it has no manifest
    ruined,  ///< whole, but the training had blown up
    unreadable  ///< the system does not let it be read: nobody knows
  };
  Kind kind = Kind::good;
  std::string problem;  ///< one sentence; empty for a good one

  bool good() const { return kind == Kind::good; }
};

/// Good: the manifest is sound and carries no mark, every file of it is there in its full size, and the files beside
/// the tensors and the tensors' headers match their checksums. Whoever loads tensors verifies them; verify() reads all.
///
/// Cost      reads the small files and headers
Verdict verdict_of(const std::filesystem::path& folder);

/// A checkpoint that was passed over.
struct PassedOver {
  std::filesystem::path path;
  Verdict verdict;
};

/// The newest good checkpoint of a run's folder, or nothing: no checkpoint yet. Newer ones that are not good are added
/// to `passed_over`.
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& out_dir,
                                                 std::vector<PassedOver>* passed_over = nullptr);

/// The newest good checkpoint older than `folder` beside it.
std::optional<std::filesystem::path> find_older(const std::filesystem::path& folder);

/// Writes into the manifest of a checkpoint why it is ruined, in one step. Errors    Error; it is then as it was
void mark_ruined(const std::filesystem::path& folder, const std::string& why);

/// Deletes checkpoints older than `step` until `keep_last` good ones are left, that of `step` among them. Where that of
/// `step` is ruined, no good one goes. Of ruined ones only the newest stays. Newer ones, folders without a manifest,
/// and those that are or hold one of `protected_paths`, are never touched. Nothing happens when keep_last < 1 or when
/// that of `step` is damaged.
/// @returns  the folders deleted
std::vector<std::filesystem::path> keep_last_checkpoints(const std::filesystem::path& out_dir, int64_t step,
                                                         int keep_last,
                                                         std::span<const std::filesystem::path> protected_paths = {});

}  // namespace trireme::checkpoint
