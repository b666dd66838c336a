// Which checkpoint of a run did best at its evaluation (save.keep_best).
#pragma once

#include <filesystem>
#include <optional>

namespace trireme::train {

/// How many held-out groups of an evaluation got no reward; written only where some did.
inline constexpr const char* kHeldOutFailures = "val_failed_groups";

/// The checkpoint in `out_dir` whose step has the best evaluation in metrics.jsonl: the highest val_reward, or where
/// there are none the lowest held-out loss. The later one of equals; nothing if no step was saved and evaluated.
/// An evaluation in which held-out groups failed does not count, nor one of other data or another objective
/// (MetricsRow::measured_anew).
///
/// Errors    as observe::read_metrics
std::optional<std::filesystem::path> best_checkpoint(const std::filesystem::path& out_dir);

}  // namespace trireme::train
