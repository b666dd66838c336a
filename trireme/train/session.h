// Session: one rank of a run, ready to train: ranks connected, step planned, arena allocated. Pretraining and
// benchmarks are loops over it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trireme/data/batch_loader.h"
#include "trireme/engine/engine.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/model/model.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/observe/step_time.h"
#include "trireme/optim/loss_scale.h"
#include "trireme/settings/settings.h"
#include "trireme/train/ranks.h"
#include "trireme/train/start_phases.h"

namespace trireme::observe {
class Profile;  // profile.h
}

namespace trireme::train {

class Foresight;  // foresight.h

/// Checkpoints of this start of the run.
struct Saves {
  int64_t count = 0;
  double seconds = 0;  ///< of this rank's work
};

struct Session {
  StartPhases phases;  ///< up to the first step
  Settings settings;
  launch::RankEnvironment environment;
  model::Model model;
  model::Precision precision;
  at::Device device = at::kCPU;  ///< what this rank computes on
  Ranks ranks;
  std::unique_ptr<engine::Engine> engine;
  std::shared_ptr<Foresight> foresight;  ///< on the first rank of a run with settings.predict; else null
  std::shared_ptr<observe::Profile> profile;  ///< of a run with settings.profile.measure; else null
  observe::StepTime last_step;
  int64_t last_learned_tokens = 0;  ///< of the same step, over all ranks
  Saves saves;
  std::optional<optim::LossScale> loss_scale;  ///< present: the loss is scaled
  int64_t skipped_before = 0;  ///< steps that the run had skipped when it was resumed
  std::optional<observe::MemoryUsage> program;  ///< rank 0's memory before the arena was allocated

  std::vector<int64_t> positions;  ///< where in the sequence this rank's tokens are (model::context_positions)

  comm::Communicator& world() { return *ranks.communicators.world; }
  bool is_first_rank() const { return environment.global_rank == 0; }
  int64_t sequence() const { return engine->plan().request.shape.sequence; }
  int64_t tokens_per_step() const { return settings.train.global_batch_size * sequence(); }
  /// Copies what this rank needs from `batch`, a micro-batch of whole sequences: the tokens at `positions`, and
  /// document starts and position ids if the plan needs them.
  void load(const engine::BatchTensors& to, const data::Batch& batch) const;
  void copy_local(const at::Tensor& to, std::span<const int64_t> whole) const;  ///< the tokens at `positions` only
  /// FLOPs of forward and backward for one token. Attention counts only what masks and windows keep.
  double flops_per_token() const;
  double product_flops_per_token() const;  ///< those of matrix products with weights
  /// Steps that the run has skipped, also those of an earlier start that scaled its loss where this one does not. The
  /// optimizer has not counted them.
  int64_t skipped() const { return loss_scale ? loss_scale->skipped() : skipped_before; }
  /// Optimizer options of step `step` (1 is the first) at learning rate `lr`.
  optim::OptimizerOptions optimizer(double lr, int64_t step) const;
};

/// Errors    UsageError, CommError, Error (no memory for the arena), all before anything is written
std::unique_ptr<Session> make_session(const Settings& settings, const launch::RankEnvironment& environment);

/// The lines about the step that rank 0 prints at the start.
std::string describe_start(Session& session);

}  // namespace trireme::train
