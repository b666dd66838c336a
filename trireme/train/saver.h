// When and how a run's checkpoints are saved: at once or beside training (save.mode), and what becomes of a save that
// fails (save.on_error).
//
// A save beside training goes on in phases; the training loop asks busy() on every rank, sends the answer with what it
// sends anyway, and calls advance() once no rank is busy. One save is under way at a time.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/checkpoint/save_job.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// Proves that the ranks see one out_dir. Every rank must call. Errors    CheckpointError naming host and rank
void check_out_dir(Session& session);

class Saver {
 public:
  using Say = std::function<void(const std::string& line)>;

  /// `say` takes the lines for the reader; lines come on rank 0 only.
  Saver(Session& session, Say say) : s_(session), say_(std::move(say)) {}

  // Every rank must call these; each throws the same CheckpointError on every rank, where save.on_error says so.

  /// Saves, or begins to; first waits for a save that is still under way, and says so.
  void save(const RunState& state);
  /// Goes on with the save under way; only when no rank is busy().
  void advance();
  /// Waits for the save under way.
  void finish();
  /// After finish(): saves unless the save of this step has succeeded. Must succeed, whatever save.on_error says.
  void save_last(const RunState& state);

  /// True while this rank still works on the present phase of a save.
  bool busy() const { return job_ && !job_->idle(); }
  bool under_way() const { return job_ != nullptr; }

  /// What finish() and save_last() take, by the save before; until there was one, by the state's size.
  double expected_seconds() const;

 private:
  template <class Work>
  void guarded(int64_t step, Work work);
  void save_now(const RunState& state);
  void begin(const RunState& state);
  void report(const checkpoint::SaveResult& result, const std::string& how);

  Session& s_;
  Say say_;
  std::unique_ptr<checkpoint::SaveJob> job_;
  std::chrono::duration<double> stood_still_{};  ///< training, for the save under way
  int64_t saved_step_ = -1;
  std::optional<double> seconds_;  ///< that the last save worked
};

}  // namespace trireme::train
