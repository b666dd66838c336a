// Where operations put the gradients of weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace trireme::ops {

/// Where the gradient of a weight goes: a tensor of the compute dtype, or of the wider dtype of statistics. With
/// `accumulate` it is added to what lies there; matrix products need a tensor for that that loses nothing: not
/// bfloat16.
struct Gradient {
  at::Tensor to;
  bool accumulate = false;

  Gradient() = default;  ///< none is wanted
  Gradient(at::Tensor tensor, bool adds = false) : to(std::move(tensor)), accumulate(adds) {}
  bool defined() const { return to.defined(); }
};

/// What was made beside it goes where it belongs: x is rounded to its dtype, or with `accumulate` added
/// (ops::accumulate).
void write_gradient(const Gradient& gradient, const at::Tensor& x);
/// What one chunk of rows of cross_entropy_forward_backward (ops/ops.h) adds to dw, given the gradient of its logits;
/// also for shards of the vocabulary.
void cross_entropy_weight_gradient(const Gradient& dw, const at::Tensor& dw_sum, const at::Tensor& dlogits,
                                   const at::Tensor& x, bool first, bool last);

}  // namespace trireme::ops
