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
  own_model::Task task;  ///< its parts, unless `parallel_parts` is set
  std::vector<Wrapped> (*parallel_parts)(const TensorRanksPtr& ranks) = nullptr;
  bool sequence_parallel = false;
  model::Precision precision{at::kDouble, at::kDouble};
  comm::MeshSizes mesh = {.shard = 1};
  plan::Strategy strategy = plan::Strategy::no_shard;
  schedule::PipelineSettings pipeline;
  schedule::RecomputeSettings recompute;
  schedule::OffloadSettings offload;
  std::string optimizer = "AdamW";  ///< of torch.optim; SGD with Nesterov's momentum
  int steps = 3;
  int micro_batches = 4;   ///< of the global batch
  bool local_accumulation = false;
  bool steps_in_backward = false;  ///< without clipping
  bool poison = true;
  int ranks() const { return mesh.pp * mesh.replicate * mesh.shard * mesh.cp * mesh.tp; }
};

struct WrapOutcome {
  std::vector<double> losses, norms;
  double evaluation = 0;                      ///< after the last step, of batch 0 on every rank
  std::map<std::string, at::Tensor> parameters;
};

// float64: sums are in another order (micro-batches one by one, norms in blocks, parts of products by ranks), which
// moves the 16th digit; AdamW's first steps divide by |gradient|, and no element here is near zero, so 1e-10 has room.
constexpr double kTolerance = 1e-10;

constexpr double kMaxNorm = 0.5, kLearningRate = 3e-3, kWeightDecay = 0.1, kMomentum = 0.9;

/// Errors    those of the first rank that has one
WrapOutcome train(const WrapJob& job);

/// What a rank's trainer is made of.
TrainerOptions trainer_options(const WrapJob& job, const comm::GroupOptions& ranks);
model::Model make_model(const WrapJob& job, const TrainerOptions& options);
/// Stores this rank's micro-batches of a step.
void store_batches(Trainer& trainer, const WrapJob& job, int step);

inline at::Tensor square_loss(const at::Tensor& y, const at::Tensor& target) { return (y - target).square().sum(); }

/// Two layers of three numbers, and a micro-batch for them.
inline const model::Example kExample{torch::ones({4, 3}), torch::zeros({4, 3})};
inline std::vector<Wrapped> two_layers() {
  std::vector<Wrapped> parts;
  parts.push_back(wrap("first", torch::nn::Linear(3, 5)));
  parts.push_back(wrap_loss("last", torch::nn::Linear(5, 3), square_loss));
  return parts;
}

/// The text of the Error that `call` throws.
template <class Error, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

/// Runs on_rank on `ranks` threads with one store. Errors: those of the first rank that has one.
void on_threads(int ranks, const std::function<void(int rank, comm::GroupOptions ranks)>& on_rank);

/// Autograd over the whole model, the optimizer of torch::optim, clip_grad_norm_.
WrapOutcome train_plainly(const WrapJob& job);

/// Largest absolute difference of losses, norms, evaluation and parameters.
double distance(const WrapOutcome& a, const WrapOutcome& b);

}  // namespace trireme::engine
