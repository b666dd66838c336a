// Which checkpoint of a run did best at its evaluation (save.keep_best).
#pragma once

#include <filesystem>
#include <optional>

namespace trireme::train {

/// The checkpoint in `out_dir` whose step has the best evaluation in metrics.jsonl: the highest val_reward, or where
/// there are none the lowest held-out loss. The later one of equals; nothing if no step was saved and evaluated.
///
/// Errors    as observe::read_metrics
std::optional<std::filesystem::path> best_checkpoint(const std::filesystem::path& out_dir);

}  // namespace trireme::train
