// Where a run's weights and state come from: new weights, a model's folder, or the checkpoint that it resumes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/good.h"
#include "trireme/settings/settings.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// The folder whose weights a new run starts from: the model's folder, if it has weights. Empty: none.
std::filesystem::path starting_weights(const Settings& settings);

/// The checkpoint that `resume` means; empty: a new run. Newer checkpoints that are not good are added to
/// `passed_over`.
/// Errors    UsageError if a required checkpoint does not exist, if none is good, if a newer one cannot be read, or if
///           the named folder holds weights without the state of a run
std::filesystem::path find_resume(const Settings& settings, std::vector<checkpoint::PassedOver>* passed_over = nullptr);

class StartingPoint {
 public:
  /// All ranks take what find_resume() finds on rank 0. If each rank looked for itself, while checkpoints are saved or
  /// deleted or a file system caches its listing, ranks could resume different steps. Every rank must call.
  /// Errors    as find_resume(), the same on every rank; UsageError, too, if ranks would start from other weights
  explicit StartingPoint(Session& session);

  /// The checkpoint that is resumed; empty: a new run.
  const std::filesystem::path& resume() const { return resume_; }

  /// Fills the engine and returns the run's state, with the settings of this start. If the checkpoint was found (the
  /// user did not name it) and turns out to be damaged, the next older good one is loaded; a restart considers only its
  /// own run's. Every rank must call. Errors    CheckpointError, the same on every rank
  RunState load();

  /// After load(): the step that the run goes on from; 0: a new run.
  int64_t step() const { return step_; }

  /// After load(): whether evaluations before this start were of other held-out data, of more or fewer samples, or of
  /// another objective. `moved` is what Task::restore() returned.
  bool is_measured_anew(const std::string& moved, int64_t held_out_samples) const;

  /// After load(): whether this start computes in another precision than the run did.
  bool has_other_precision() const;

  /// The lines about it that rank 0 prints at the start.
  std::vector<std::string> describe() const;

 private:
  void require_same_weights();
  RunState load_base();
  std::optional<std::filesystem::path> older(const std::filesystem::path& damaged) const;

  Session& s_;
  std::filesystem::path resume_, weights_;
  int64_t step_ = 0;
  double most_evaluated_ = 0;  ///< samples of an evaluation before this start; 0: a new run
  std::vector<checkpoint::PassedOver> passed_over_;
  std::vector<std::string> changed_;  ///< settings, since the checkpoint that is resumed
  bool has_new_head_ = false;  ///< a classification head that weights_ lacks
  bool unverified_ = false;  ///< what was loaded has no manifest
};

}  // namespace trireme::train
