// When and how a run's checkpoints are saved: at once or beside training (save.mode), and what happens if a save fails
// (save.on_error).
//
// A save beside training runs in phases. The training loop asks busy() on every rank, sends the answer with a
// collective that it needs anyway, and calls advance() when no rank is busy. Only one save is under way at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/save_job.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// Checks that all ranks see the same out_dir. Every rank must call. Errors    CheckpointError naming host and rank
void check_out_dir(Session& session);

class Saver {
 public:
  using Say = std::function<void(const std::string& line)>;

  /// `say` takes the lines for the user, on rank 0.
  Saver(Session& session, Say say) : s_(session), say_(std::move(say)) {}

  /// Before the first step: the run goes on from a checkpoint, with the data, objective and precision of before: where
  /// it is one of its own, the next step proves it as if it had just been saved.
  void resumed_from(const std::filesystem::path& checkpoint, int64_t step);
  /// Before the first step: what this folder has from later steps no longer counts as its newest (checkpoint/good.h).
  /// Every rank must call. Errors    Error, on every rank
  void leave_later_behind(int64_t step);

  // Every rank must call these. With save.on_error stop, each throws the same CheckpointError on every rank.

  /// Call it after each step that tells how its weights fare; `trouble` is its trouble_of() (train/trouble.h). If the
  /// first such step after a save has trouble, the save is marked as ruined. Older checkpoints are deleted only after
  /// that step (save.keep_last).
  void saw(int64_t step, const std::string& trouble);

  /// Call it after each other step, which was skipped and had `trouble`: its weights are unproven. If the run ends
  /// before a step proves them, the saves since the last proof are marked.
  void suspect(int64_t step, const std::string& trouble);

  /// Saves, or begins a save. First waits for a save that is still under way, and says so.
  void save(const RunState& state);
  /// Runs the next phase of the save under way; only if no rank is busy().
  void advance();
  /// Waits for the save under way.
  void finish();
  /// After finish(): saves unless this step has been saved. A failure throws, whatever save.on_error says.
  void save_last(const RunState& state);

  /// True while this rank still works on the current phase of a save.
  bool busy() const { return job_ && !job_->idle(); }
  bool under_way() const { return job_ != nullptr; }

  /// The expected time of finish() and save_last(), from the last save or else the size of the state.
  double expected_seconds() const;

 private:
  template <class Work>
  void guarded(int64_t step, Work work);
  void save_now(const RunState& state);
  void begin(const RunState& state);
  void report(const checkpoint::SaveResult& result, const std::string& how);
  void settle();
  void tell_settled();

  Session& s_;
  Say say_;
  std::unique_ptr<checkpoint::SaveJob> job_;
  double seconds_stood_still_ = 0;  ///< how long training waited for the save under way
  int64_t saved_step_ = -1;
  std::string trouble_;  ///< of the last step
  std::optional<std::string> proof_;  ///< which step after the save had which trouble; empty: none had
  std::string suspicion_;  ///< of steps since the last one that tells
  std::vector<std::filesystem::path> unproven_;  ///< saves on disk that settle() has not seen yet
  /// On rank 0: marks and deletes checkpoints beside training; returns the lines for the user.
  std::future<std::vector<std::string>> settling_;
  std::optional<double> seconds_;  ///< of the last save's work
};

}  // namespace trireme::train
