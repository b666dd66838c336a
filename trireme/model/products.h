// The linear layers of a unit, as data: which parameters are one matrix to a product, and how it is stored.
#pragma once

#include "trireme/model/norms.h"

namespace trireme::model {

struct Product {
  int weight = 0;       ///< index among a unit's parameters
  int parts = 1;        ///< so many parameters from there on are joined: one matrix
  int bias = -1;        ///< of the first part, the others' joined behind it; -1: none
  bool in_out = false;  ///< stored [in, out] (GPT-2's Conv1D), else [out, in]
};

/// The matrix of a product as one view: joined parts lie without gaps.
at::Tensor product_matrix(const Product& product, const Tensors& tensors);
/// y = x W, without the bias: of a row-parallel product it is added once, after the sum over the ranks.
void product_forward(const Product& product, const at::Tensor& y, const at::Tensor& x, const Tensors& parameters);
/// y += bias, where there is one.
void product_bias(const Product& product, const at::Tensor& y, const Tensors& parameters);
void product_backward_input(const Product& product, const at::Tensor& dx, const at::Tensor& dy,
                            const Tensors& parameters);
/// Writes the gradients of the matrix and of the bias, or adds to them.
void product_backward_weight(const Product& product, const Tensors& gradients, bool accumulate, const at::Tensor& dy,
                             const at::Tensor& x);

}  // namespace trireme::model
