// wrap: makes the units of a model from your own LibTorch modules. Autograd runs inside each unit. The schedule gathers
// weights, reduces gradients, runs pipelines and the optimizer, as for built-in models.
//
//     std::vector<trireme::Wrapped> parts;
//     parts.push_back(trireme::wrap("stem", stem));                  // torch::nn::Linear, your own module, ...
//     parts.push_back(trireme::wrap("block 0", block));
//     parts.push_back(trireme::wrap_loss("head", head, [](const torch::Tensor& scores, const torch::Tensor& targets) {
//       return torch::nn::functional::cross_entropy(scores, targets, Options().reduction(torch::kSum));
//     }));
//     auto model = trireme::build_model(std::move(parts), {.inputs = inputs, .targets = targets});
//
// Include <torch/nn.h> yourself: this header only needs named_modules(), named_parameters(), named_buffers(), train(),
// is_training() and forward() of a module.
//
// Differences from a built-in unit:
//   memory      Autograd keeps its values from forward to backward in LibTorch's allocator, outside planned memory. A
//               probe run measures them when the model is built (AllocatorMemory; engine::autograd_allowance).
//   weights     In a step, the modules' parameters are views of planned memory, set before each action. Between steps
//               they have no values; engine::store_parameters gives them own memory until the next step or evaluation.
//               Reading or writing them without it is an error with a sentence. What is written after it is lost.
//   modes       A module that is in eval() stays so in training, as in a loop of your own. Trainer::evaluate puts all
//               modules in evaluation mode, and then each back in its own.
//   inputs      A first part may change its input in place; it gets a copy of each micro-batch. For other parts this is
//               an error of LibTorch.
//   buffers     Each rank has its own buffers and frozen parameters; the latter must be equal on all ranks. So
//   BatchNorm's
//               running statistics are those of the rank's micro-batches. Both are converted to precision.compute, too:
//               in two bytes, small changes of statistics are lost, and rank 0's Trainer warns of that. Recomputation
//               leaves buffers as they are, so a micro-batch counts once. A module that computes with buffers that it
//               changes is recomputed with newer ones. Checkpoints contain neither buffers nor frozen parameters.
//   zero bubble These schedules run the whole backward in place of the input half.
//   tp          Divides the layers of parallel_layers.h and modules of your own that are a ParallelLayer
//               (tensor_ranks.h). Every rank computes all else, and sums its gradients over mesh.tp after each
//               backward. Modules that draw random numbers (dropout) are refused with tp above 1. Threads that prepare
//               data need a generator of their own there.
//   cp          Sizes above 1 are refused.
//   random      Modules draw from the process's default generator; recomputation draws the same numbers again. Ranks
//               that are threads share the generator, so their dropout is not repeatable. They build their modules and
//               models one after the other.
// A module belongs to one rank: ranks that are threads build one each.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/model/model.h"
#include "trireme/model/tensor_ranks.h"

namespace trireme::model {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// A parallel layer inside a module, and its name there ("" for the module itself).
struct NamedLayer {
  std::string name;
  TensorRanksPtr ranks;
  std::vector<ParallelLayer::Divided> divided;
};

/// One part of a model before it becomes a unit: what wrap() takes from a module. Either `forward` or `loss` is set.
struct Wrapped {
  std::string name;
  std::vector<NamedTensor> parameters;  ///< trainable; shared with the module
  std::vector<NamedTensor> frozen;  ///< parameters; each rank keeps its own
  std::vector<NamedTensor> buffers;  ///< likewise
  std::vector<NamedLayer> layers;  ///< the parallel ones
  std::function<at::Tensor(const at::Tensor& input)> forward;
  /// For the last part: the sum (not the mean) of the losses of a micro-batch.
  std::function<at::Tensor(const at::Tensor& input, const at::Tensor& targets)> loss;
  std::function<void(bool training)> train;  ///< false: evaluation mode; true: each module's own mode again
  std::function<size_t()> count;  ///< how many parameters the module has now
};

/// Inputs and targets of one micro-batch. All later micro-batches must have the same shapes.
struct Example {
  at::Tensor inputs, targets;
};

namespace detail {

/// Evaluation mode, and back to the modes that the module and those inside it had: a part may stay in eval().
template <class Module>
std::function<void(bool)> training_switch(Module module) {
  return [module, modes = std::vector<bool>()](bool training) mutable {
    const auto modules = module->named_modules();  // each before those inside it, whose modes train() sets too
    if (!training && modes.empty()) {
      for (const auto& item : modules) modes.push_back(item.value()->is_training());
      module->train(false);
    } else if (training) {
      size_t i = 0;
      for (const auto& item : modules)
        if (i < modes.size()) item.value()->train(modes[i++]);
      modes.clear();
    }
  };
}

template <class Module>
Wrapped take_tensors(std::string name, Module module) {
  if (!module) throw UsageError("[wrap] the part '" + name + "' has no module: a null pointer was given");
  Wrapped part{.name = std::move(name)};
  for (const auto& item : module->named_parameters())
    (item.value().requires_grad() ? part.parameters : part.frozen).push_back({item.key(), item.value()});
  for (const auto& item : module->named_buffers()) part.buffers.push_back({item.key(), item.value()});
  for (const auto& item : module->named_modules())
    if (const auto* layer = dynamic_cast<const ParallelLayer*>(item.value().get()))
      part.layers.push_back({item.key(), layer->ranks(), layer->divided()});
  part.train = training_switch(module);
  part.count = [module]() mutable { return module->named_parameters().size(); };
  return part;
}

// A lambda is always a loss; a std::function or a pointer may be empty.
template <class Loss>
void check_loss(const Loss& loss) {
  if constexpr (requires { loss == nullptr; })
    if (loss == nullptr) throw UsageError("[wrap] the loss is an empty function; give one that computes something");
}

}  // namespace detail

/// `module`: a ModuleHolder or a shared_ptr of a torch::nn::Module with forward(Tensor).
template <class Module>
Wrapped wrap(std::string name, Module module) {
  Wrapped part = detail::take_tensors(std::move(name), module);
  part.forward = [module](const at::Tensor& input) mutable -> at::Tensor { return module->forward(input); };
  return part;
}

/// The last part: `loss(module's output, targets)` is a scalar, the sum of the losses of a micro-batch. The engine
/// divides it by the number of losses in the global batch. If the output is bfloat16, convert it to float32 in `loss`.
template <class Module, class Loss>
Wrapped wrap_loss(std::string name, Module module, Loss loss) {
  detail::check_loss(loss);
  Wrapped part = detail::take_tensors(std::move(name), module);
  part.loss = [module, loss](const at::Tensor& input, const at::Tensor& targets) mutable -> at::Tensor {
    return loss(module->forward(input), targets);
  };
  return part;
}

/// A last part without parameters.
template <class Loss>
Wrapped wrap_loss(Loss loss) {
  detail::check_loss(loss);
  return {.name = "loss", .loss = std::move(loss)};
}

/// Builds a model of the parts, in order; the last part has the loss. Parameters are named "part.parameter". A tensor
/// that two parts share is one (tied) parameter, under its first name. Weight decay applies to matrices, not to
/// vectors. Modules are converted to precision.compute; training starts from their values (engine::load_parameters).
///
/// `parallel`: as the parallel layers' TensorRanks says. Inputs and targets are the same on all ranks of mesh.tp, and
/// so is the loss. Under sequence parallelism, a part may hand its rows to the next (TensorRanks::own_rows).
///
/// Cost      one forward and backward of `example`, to measure shapes and memory; buffers and random state are
///           restored. With mesh.tp, each backward of a part sums the gradients of what is not divided over the ranks
/// Errors    UsageError: no parts, equal names of parts or parameters, a loss that is not the last part or reaches no
///           parameter, a part that changes its parameters in forward, c10::InferenceMode, cp above 1; tp above 1 and
///           no parallel layer, or layers of another TensorRanks, or random numbers; modules whose parameters lie in
///           the memory of a Trainer (store() gives them their own); a part that computes with another part's
///           parameter, or with one of no part, and two parameters in one memory; complex parameters; an example
///           without inputs or targets; a precision that modules do not compute in. ShapeError naming the part that
///           cannot run on the output of the part before it
Model build_model(std::vector<Wrapped> parts, const Example& example, const Precision& precision = {},
                  const Parallel& parallel = {}, const Grouping& grouping = {});

}  // namespace trireme::model

namespace trireme {
using model::build_model;
using model::wrap;
using model::wrap_loss;
using model::Wrapped;
}  // namespace trireme
