#include "trireme/model/products.h"

#include <ATen/ATen.h>

#include "trireme/ops/ops.h"

namespace trireme::model {

namespace {

// Parameters first .. first + parts - 1, which lie without gaps, as one tensor.
at::Tensor joined(const Tensors& tensors, int first, int parts) {
  if (parts == 1) return tensors[first];
  std::vector<int64_t> shape = tensors[first].sizes().vec();
  for (int i = 1; i < parts; ++i) shape[0] += tensors[first + i].size(0);
  return at::from_blob(tensors[first].data_ptr(), shape, tensors[first].options());
}

}  // namespace

at::Tensor product_matrix(const Product& product, const Tensors& tensors) {
  return joined(tensors, product.weight, product.parts);
}

void product_forward(const Product& product, const at::Tensor& y, const at::Tensor& x, const Tensors& parameters) {
  const at::Tensor w = product_matrix(product, parameters);
  product.in_out ? ops::linear_in_out_forward(y, x, w) : ops::linear_forward(y, x, w);
}

void product_bias(const Product& product, const at::Tensor& y, const Tensors& parameters) {
  if (product.bias >= 0) ops::bias_forward(y, joined(parameters, product.bias, product.parts));
}

void product_backward_input(const Product& product, const at::Tensor& dx, const at::Tensor& dy,
                            const Tensors& parameters) {
  const at::Tensor w = product_matrix(product, parameters);
  product.in_out ? ops::linear_in_out_backward_input(dx, dy, w) : ops::linear_backward_input(dx, dy, w);
}

void product_backward_weight(const Product& product, const Tensors& gradients, bool accumulate, const at::Tensor& dy,
                             const at::Tensor& x) {
  const ops::Gradient dw{product_matrix(product, gradients), accumulate};
  product.in_out ? ops::linear_in_out_backward_weight(dw, dy, x) : ops::linear_backward_weight(dw, dy, x);
  if (product.bias >= 0) ops::bias_backward({joined(gradients, product.bias, product.parts), accumulate}, dy);
}

}  // namespace trireme::model
