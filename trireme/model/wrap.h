// wrap: a user's own LibTorch modules as the units of a model. Autograd runs inside each unit; gathering weights,
// reducing gradients, pipelines and the optimizer are the schedule's, as for built-in models.
//
//     std::vector<trireme::Wrapped> parts;
//     parts.push_back(trireme::wrap("stem", stem));                  // torch::nn::Linear, your own module, ...
//     parts.push_back(trireme::wrap("block 0", block));
//     parts.push_back(trireme::wrap_loss("head", head, [](const torch::Tensor& scores, const torch::Tensor& targets) {
//       return torch::nn::functional::cross_entropy(scores, targets, Options().reduction(torch::kSum));
//     }));
//     auto model = trireme::build_model(std::move(parts), {.inputs = inputs, .targets = targets});
//
// Include <torch/nn.h> yourself: nothing here needs more of a module than named_parameters(), named_buffers(),
// train() and forward(), so this header stays light.
//
// What is different from a built-in unit:
//   memory      what autograd keeps from forward to backward lies in LibTorch's allocator, outside the plan; a probe
//               run measures it when the model is built (AutogradMemory; engine::autograd_allowance)
//   weights     from the first step on the modules' parameters are views of planned memory, set before each action;
//               between actions they may hold anything (engine::store_parameters gives them memory of their own again)
//   buffers     and frozen parameters stay as they are on each rank: running statistics of a BatchNorm are those of
//               the rank's own micro-batches, and no checkpoint holds them
//   zero bubble schedules run its backward unsplit, in the place of the input half
//   tp, cp      above 1 are refused
//   random      numbers come from the process's default generator: recomputation draws the same again, but ranks that
//               are threads share it, and dropout is then not repeatable
// A module belongs to one rank: ranks that are threads build one each.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/model/model.h"

namespace trireme::model {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// One part of a model, before it becomes a unit: what wrap() takes from a module. Has `forward` or `loss`.
struct Wrapped {
  std::string name;
  std::vector<NamedTensor> parameters;  ///< trainable; shared with the module
  std::vector<NamedTensor> buffers;     ///< and frozen parameters: kept by each rank
  std::function<at::Tensor(const at::Tensor& input)> forward;
  /// The last part: the sum (no mean) of the losses of a micro-batch.
  std::function<at::Tensor(const at::Tensor& input, const at::Tensor& targets)> loss;
  std::function<void(bool training)> train;
};

/// Inputs and targets of one micro-batch, as a training step will get them: their shapes are the model's for good.
struct Example {
  at::Tensor inputs, targets;
};

namespace detail {

template <class Module>
Wrapped take_tensors(std::string name, Module module) {
  Wrapped part{.name = std::move(name)};
  for (const auto& item : module->named_parameters())
    (item.value().requires_grad() ? part.parameters : part.buffers).push_back({item.key(), item.value()});
  for (const auto& item : module->named_buffers()) part.buffers.push_back({item.key(), item.value()});
  part.train = [module](bool training) mutable { module->train(training); };
  return part;
}

}  // namespace detail

/// `module`: anything with ->, forward(Tensor) and what torch::nn::Module has: a ModuleHolder or a shared_ptr.
template <class Module>
Wrapped wrap(std::string name, Module module) {
  Wrapped part = detail::take_tensors(std::move(name), module);
  part.forward = [module](const at::Tensor& input) mutable -> at::Tensor { return module->forward(input); };
  return part;
}

/// The last part: `loss(module's output, targets)` is the sum of the losses of a micro-batch, a scalar; it is divided
/// by their number over the whole global batch. Make it float32 yourself where the output is bfloat16.
template <class Module, class Loss>
Wrapped wrap_loss(std::string name, Module module, Loss loss) {
  Wrapped part = detail::take_tensors(std::move(name), module);
  part.loss = [module, loss](const at::Tensor& input, const at::Tensor& targets) mutable -> at::Tensor {
    return loss(module->forward(input), targets);
  };
  return part;
}

/// A last part without parameters.
template <class Loss>
Wrapped wrap_loss(Loss loss) {
  return {.name = "loss", .loss = std::move(loss)};
}

/// The model of the given parts, in order; the last one has the loss. Parameters are named "part.parameter"; one
/// tensor in two parts is one parameter (tied), under its first name. Matrices decay, vectors do not. Modules are
/// converted to precision.compute; training starts from their values (engine::load_parameters).
///
/// Cost      one forward and backward of the example, to learn shapes and memory; buffers and the random state are
///           as before when it returns
/// Errors    UsageError: no parts, names twice, a loss elsewhere than at the end, tp or cp above 1; ShapeError naming
///           the part that cannot read what the part before it gives
Model build_model(std::vector<Wrapped> parts, const Example& example, const Precision& precision = {},
                  const Parallel& parallel = {}, const Grouping& grouping = {});

}  // namespace trireme::model

namespace trireme {
using model::build_model;
using model::wrap;
using model::wrap_loss;
using model::Wrapped;
}  // namespace trireme
