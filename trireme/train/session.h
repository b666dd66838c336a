// Session: one rank of a run, put together - ranks connected, step planned, arena allocated, weights filled.
// Pretraining and benchmarks are loops over it.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "trireme/config/settings.h"
#include "trireme/data/batch_loader.h"
#include "trireme/engine/engine.h"
#include "trireme/launch/environment.h"
#include "trireme/model/model.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/train/ranks.h"
#include "trireme/train/start_phases.h"

namespace trireme::train {

struct Session {
  StartPhases phases;  ///< up to the first step
  config::Settings settings;
  launch::RankEnvironment environment;
  model::Model model;
  model::Precision precision;
  at::Device device = at::kCPU;  ///< what this rank computes on
  Ranks ranks;
  std::unique_ptr<engine::Engine> engine;
  std::optional<observe::MemoryUsage> program;  ///< what rank 0 held before the plan's memory was there

  std::vector<int64_t> positions;  ///< of the sequence that this rank holds (model::context_positions)

  comm::Communicator& world() { return *ranks.communicators.world; }
  bool is_first_rank() const { return environment.global_rank == 0; }
  int64_t sequence() const { return engine->plan().request.shape.sequence; }
  /// Copies this rank's part of a micro-batch of whole sequences, and what its plan wants to know of documents.
  void load(const engine::BatchTensors& to, const data::Batch& batch) const;
  void copy_local(const at::Tensor& to, std::span<const int64_t> whole) const;
  /// Of training on one token, forward and backward, with what causal masks and windows leave of attention.
  double flops_per_token() const;
  /// Optimizer options of step `step` (1 is the first) at learning rate `lr`.
  optim::OptimizerOptions optimizer(double lr, int64_t step) const;
};

/// Errors    UsageError, CommError, Error (no memory for the arena), each before anything is written
std::unique_ptr<Session> make_session(const config::Settings& settings, const launch::RankEnvironment& environment);

/// The start's lines, as `trireme` prints them on rank 0.
std::string describe_start(Session& session);

}  // namespace trireme::train
