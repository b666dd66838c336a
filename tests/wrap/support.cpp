#include "support.h"

#include <ATen/Parallel.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace trireme::engine {

void on_threads(int ranks, const std::function<void(int, comm::GroupOptions)>& on_rank) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> errors(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      at::set_num_threads(1);
      try {
        on_rank(r, {.backend = ranks > 1 ? "threads" : "auto",
                    .rank = r,
                    .size = ranks,
                    .store = store,
                    .timeout = std::chrono::seconds(60)});
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

static optim::OptimizerOptions optimizer_of(const WrapJob& job) {
  optim::OptimizerOptions options = optim::options_of(job.optimizer);
  options.weight_decay = kWeightDecay;
  options.nesterov = options.rule == optim::Rule::sgd;
  options.momentum = options.nesterov ? kMomentum : 0;
  return options;
}

static std::vector<Wrapped> make_parts(const WrapJob& job, const TensorRanksPtr& ranks) {
  if (!job.parallel_parts) return own_model::make_parts(job.task);
  torch::manual_seed(7);
  return job.parallel_parts(ranks);
}

model::Model make_model(const WrapJob& job, const TrainerOptions& options) {
  if (!job.parallel_parts) return own_model::make_model(job.task, job.precision);
  static std::mutex mutex;  // threads share LibTorch's random generator
  const std::lock_guard lock(mutex);
  const TensorRanksPtr ranks = tensor_ranks(options);
  return build_model(make_parts(job, ranks), job.task.batch(0), job.precision, ranks->parallel());
}

TrainerOptions trainer_options(const WrapJob& job, const comm::GroupOptions& ranks) {
  const int data_ranks = job.mesh.replicate * job.mesh.shard;
  return {.ranks = ranks,
          .mesh = job.mesh,
          .sequence_parallel = job.sequence_parallel,
          .strategy = job.strategy,
          .pipeline = job.pipeline,
          .recompute = job.recompute,
          .offload = job.offload,
          .precision = job.precision,
          .accumulate = job.micro_batches / data_ranks,
          .local_accumulation = job.local_accumulation,
          .optimizer = optimizer_of(job),
          .steps_in_backward = job.steps_in_backward,
          .loss_scale = {.initial = 256},
          .max_norm = job.steps_in_backward ? std::nullopt : std::optional(kMaxNorm),
          .poison = job.poison};
}

void store_batches(Trainer& trainer, const WrapJob& job, int step) {
  for (int i = 0; i < trainer.micro_batches(); ++i) {
    const int64_t number = int64_t(step) * job.micro_batches + i * trainer.num_data_ranks() + trainer.data_index();
    const model::Example batch = job.task.batch(number);
    trainer.backward(batch.inputs, batch.targets);
  }
}

WrapOutcome train(const WrapJob& job) {
  WrapOutcome outcome;
  on_threads(job.ranks(), [&](int rank, const comm::GroupOptions& ranks) {
    const TrainerOptions options = trainer_options(job, ranks);
    Trainer trainer(make_model(job, options), options);
    for (int step = 0; step < job.steps; ++step) {
      store_batches(trainer, job, step);
      const StepResult result = trainer.step(kLearningRate);
      if (rank > 0) continue;
      outcome.losses.push_back(result.loss);
      outcome.norms.push_back(result.gradient_norm);
    }
    const model::Example batch = job.task.batch(0);
    const double evaluation = trainer.evaluate(batch.inputs, batch.targets);
    const auto parameters = trainer.parameters();
    if (rank > 0) return;
    outcome.evaluation = evaluation;
    for (const model::NamedTensor& p : parameters) outcome.parameters[p.name] = p.tensor;
  });
  return outcome;
}

namespace {

at::Tensor loss_of(const std::vector<Wrapped>& parts, const model::Example& batch) {
  at::Tensor x = batch.inputs.is_floating_point() ? batch.inputs.to(at::kDouble) : batch.inputs;
  for (size_t i = 0; i + 1 < parts.size(); ++i) x = parts[i].forward(x);
  return parts.back().loss(x, batch.targets);
}

}  // namespace

template <typename Optimizer, typename Options>
std::unique_ptr<torch::optim::Optimizer> with_groups(const std::vector<at::Tensor>& matrices,
                                                     const std::vector<at::Tensor>& vectors, const Options& options) {
  const auto of = [&](double decay) { return std::make_unique<Options>(Options(options).weight_decay(decay)); };
  return std::make_unique<Optimizer>(
      std::vector<torch::optim::OptimizerParamGroup>{{matrices, of(kWeightDecay)}, {vectors, of(0)}}, options);
}

static std::unique_ptr<torch::optim::Optimizer> torchs_optimizer(const std::string& name,
                                                                 const std::vector<at::Tensor>& matrices,
                                                                 const std::vector<at::Tensor>& vectors) {
  using namespace torch::optim;
  if (name == "SGD")
    return with_groups<SGD>(matrices, vectors, SGDOptions(kLearningRate).momentum(kMomentum).nesterov(true));
  if (name == "Adam") return with_groups<Adam>(matrices, vectors, AdamOptions(kLearningRate));
  return with_groups<AdamW>(matrices, vectors, AdamWOptions(kLearningRate));
}

WrapOutcome train_plainly(const WrapJob& job) {
  at::set_num_threads(1);
  const std::vector<Wrapped> parts = make_parts(job, std::make_shared<TensorRanks>(model::Parallel{}));
  WrapOutcome outcome;
  std::vector<at::Tensor> all, matrices, vectors;
  for (const Wrapped& part : parts)
    for (const model::NamedTensor& p : part.parameters) {
      p.tensor.set_data(p.tensor.detach().to(at::kDouble));
      all.push_back(p.tensor);
      (p.tensor.dim() > 1 ? matrices : vectors).push_back(p.tensor);
    }
  const std::unique_ptr<torch::optim::Optimizer> optimizer = torchs_optimizer(job.optimizer, matrices, vectors);
  for (int step = 0; step < job.steps; ++step) {
    optimizer->zero_grad();
    double sum = 0;
    int64_t count = 0;
    for (int i = 0; i < job.micro_batches; ++i) count += job.task.batch(step * job.micro_batches + i).targets.size(0);
    for (int i = 0; i < job.micro_batches; ++i) {
      const at::Tensor loss = loss_of(parts, job.task.batch(step * job.micro_batches + i));
      sum += loss.item<double>();
      (loss / double(count)).backward();
    }
    outcome.losses.push_back(sum / double(count));
    outcome.norms.push_back(torch::nn::utils::clip_grad_norm_(all, job.steps_in_backward ? 1e30 : kMaxNorm));
    optimizer->step();
  }
  const at::NoGradGuard no_grad;
  const model::Example batch = job.task.batch(0);
  outcome.evaluation = loss_of(parts, batch).item<double>() / double(batch.targets.size(0));
  for (const Wrapped& part : parts)
    for (const model::NamedTensor& p : part.parameters)
      outcome.parameters[part.name + "." + p.name] = p.tensor.detach();
  return outcome;
}

double distance(const WrapOutcome& a, const WrapOutcome& b) {
  if (a.losses.size() != b.losses.size() || a.parameters.size() != b.parameters.size()) return INFINITY;
  double worst = std::abs(a.evaluation - b.evaluation);
  for (size_t i = 0; i < a.losses.size(); ++i) {
    worst = std::max(worst, std::abs(a.losses[i] - b.losses[i]));
    worst = std::max(worst, std::abs(a.norms[i] - b.norms[i]));
  }
  for (const auto& [name, value] : a.parameters) {
    const auto other = b.parameters.find(name);
    if (other == b.parameters.end()) return INFINITY;
    const double far = (value - other->second).abs().max().item<double>();
    if (!(far <= worst)) worst = far;  // NaN too
  }
  return worst;
}

}  // namespace trireme::engine
