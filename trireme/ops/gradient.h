// Gradients of weights as arguments of operations.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace trireme::ops {

/// Where a weight's gradient goes: a tensor of the compute dtype or of the statistics dtype. With `accumulate` the
/// gradient is added to the tensor. Matrix products then refuse a tensor of two bytes, which would lose bits.
struct Gradient {
  at::Tensor to;
  bool accumulate = false;

  Gradient() = default;  ///< not wanted: operations do not compute it
  Gradient(at::Tensor tensor, bool adds = false) : to(std::move(tensor)), accumulate(adds) {}
  bool defined() const { return to.defined(); }
};

/// Writes x, a gradient that was computed elsewhere, rounded to the dtype of `gradient`; with `accumulate` adds it
/// (ops::accumulate).
void write_gradient(const Gradient& gradient, const at::Tensor& x);
/// Adds one chunk's part to dw in cross_entropy_forward_backward (ops/ops.h, which explains dw_sum), given the gradient
/// of the chunk's logits. The tensor-parallel loss, whose vocabulary is divided over ranks, uses it too. `first` and
/// `last`: whether this is the first or last chunk.
void cross_entropy_weight_gradient(const Gradient& dw, const at::Tensor& dw_sum, const at::Tensor& dlogits,
                                   const at::Tensor& x, bool first, bool last);

}  // namespace trireme::ops
