// What a result of autograd was computed from: the leaves of its graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace trireme::model {

/// The tensors to which a backward pass from `output` would add a gradient, each once. They hold references.
std::vector<at::Tensor> leaves_of(const at::Tensor& output);

}  // namespace trireme::model
