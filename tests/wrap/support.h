// Trains the models of examples/own_model on thread ranks, and the same modules in a plain single-process loop.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "examples/own_model/models.h"
#include "trireme/engine/trainer.h"

namespace trireme::engine {

struct WrapJob {
  own_model::Task task;
  model::Precision precision{at::kDouble, at::kDouble};
  comm::MeshSizes mesh = {.shard = 1};
  plan::Strategy strategy = plan::Strategy::no_shard;
  schedule::PipelineSettings pipeline;
  schedule::RecomputeSettings recompute;
  std::string optimizer = "AdamW";  ///< of torch.optim; SGD with Nesterov's momentum
  int steps = 3;
  int micro_batches = 4;   ///< of the global batch
  bool local_accumulation = false;
  bool poison = true;
  int ranks() const { return mesh.pp * mesh.replicate * mesh.shard * mesh.cp * mesh.tp; }
};

struct WrapOutcome {
  std::vector<double> losses, norms;
  double evaluation = 0;                      ///< after the last step, of batch 0 on every rank
  std::map<std::string, at::Tensor> parameters;
};

constexpr double kMaxNorm = 0.5, kLearningRate = 3e-3, kWeightDecay = 0.1, kMomentum = 0.9;

/// Errors    those of the first rank that has one
WrapOutcome train(const WrapJob& job);

/// Runs on_rank on `ranks` threads with one store. Errors: those of the first rank that has one.
void on_threads(int ranks, const std::function<void(int rank, comm::GroupOptions ranks)>& on_rank);

/// Autograd over the whole model, the optimizer of torch::optim, clip_grad_norm_.
WrapOutcome train_plainly(const WrapJob& job);

/// Largest absolute difference of losses, norms, evaluation and parameters.
double distance(const WrapOutcome& a, const WrapOutcome& b);

}  // namespace trireme::engine
