// When and how a run's checkpoints are saved: at once or beside training (save.mode), and what becomes of a save that
// fails (save.on_error).
//
// A save beside training goes on in phases; the training loop asks busy() on every rank, sends the answer with what it
// sends anyway, and calls advance() once no rank is busy. One save is under way at a time.
#pragma once

#include <chrono>
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

/// Proves that the ranks see one out_dir. Every rank must call. Errors    CheckpointError naming host and rank
void check_out_dir(Session& session);

/// Why a step with this loss and gradient norm means that training has blown up; empty when it does not. A model that
/// knows nothing has a loss of ln(vocab_size): ten times that is no spike.
std::string trouble_of(double loss, double gradient_norm, int64_t vocab_size);

class Saver {
 public:
  using Say = std::function<void(const std::string& line)>;

  /// `say` takes the lines for the reader; lines come on rank 0 only.
  Saver(Session& session, Say say) : s_(session), say_(std::move(say)) {}

  // Every rank must call these; each throws the same CheckpointError on every rank, where save.on_error says so.

  /// What a step came to, by trouble_of(): the first one after a save proves the saved weights, or marks the save as
  /// ruined. Only then do older checkpoints go (save.keep_last).
  void saw(const std::string& trouble);

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
  void settle();
  void tell_settled();

  Session& s_;
  Say say_;
  std::unique_ptr<checkpoint::SaveJob> job_;
  std::chrono::duration<double> stood_still_{};  ///< training, for the save under way
  int64_t saved_step_ = -1;
  std::string trouble_;                ///< of the last step
  std::optional<std::string> proof_;   ///< the trouble of the step after the save; empty: none
  std::filesystem::path committed_;    ///< the save whose older ones are still to go
  /// On rank 0: marks and deletes beside training; the lines to be said.
  std::future<std::vector<std::string>> settling_;
  std::optional<double> seconds_;  ///< that the last save worked
};

}  // namespace trireme::train
