#include "trireme/model/products.h"

#include <ATen/ATen.h>

#include "trireme/ops/ops.h"

namespace trireme::model {

at::Tensor product_matrix(const Product& product, const Tensors& tensors) {
  const at::Tensor& first = tensors[product.weight];
  if (product.parts == 1) return first;
  int64_t rows = 0;
  for (int i = 0; i < product.parts; ++i) rows += tensors[product.weight + i].size(0);
  return at::from_blob(first.data_ptr(), {rows, first.size(1)}, first.options());
}

void product_forward(const Product& product, const at::Tensor& y, const at::Tensor& x, const Tensors& parameters) {
  const at::Tensor w = product_matrix(product, parameters);
  product.in_out ? ops::linear_in_out_forward(y, x, w) : ops::linear_forward(y, x, w);
}

void product_bias(const Product& product, const at::Tensor& y, const Tensors& parameters) {
  if (product.bias >= 0) ops::bias_forward(y, parameters[product.bias]);
}

void product_backward_input(const Product& product, const at::Tensor& dx, const at::Tensor& dy,
                            const Tensors& parameters) {
  const at::Tensor w = product_matrix(product, parameters);
  product.in_out ? ops::linear_in_out_backward_input(dx, dy, w) : ops::linear_backward_input(dx, dy, w);
}

void product_backward_weight(const Product& product, const Tensors& gradients, const at::Tensor& dy,
                             const at::Tensor& x) {
  const at::Tensor dw = product_matrix(product, gradients);
  product.in_out ? ops::linear_in_out_backward_weight(dw, dy, x) : ops::linear_backward_weight(dw, dy, x);
  if (product.bias >= 0) ops::bias_backward(gradients[product.bias], dy);
}

}  // namespace trireme::model
