// A linear layer's three products. The result is written into the given tensor, or added to it. For weight gradients
// that tensor is a view of the flat gradient buffer.
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/products/products.h"

namespace trireme::ops {
namespace {

/// Checks y [T,N], x [T,M] and w, [N,M] or for in_out [M,N]; `names` are those of y, x and w in the message.
struct Names {
  const char *operation, *y, *x, *w;
};
void check_linear(const Names& names, const at::Tensor& y, const at::Tensor& x, const at::Tensor& w, bool in_out) {
  const auto dtype = compute_dtype(names.operation, names.w, w);
  check_dims(names.operation, names.w, w, 2);
  check_dims(names.operation, names.x, x, 2);
  const int64_t tokens = x.size(0), inputs = w.size(in_out ? 0 : 1), outputs = w.size(in_out ? 1 : 0);
  check_tensor(names.operation, names.x, x, {tokens, inputs}, dtype);
  check_tensor(names.operation, names.w, w, w.sizes(), dtype);
  check_tensor(names.operation, names.y, y, {tokens, outputs}, dtype);
}

void check_weight(const char* operation, const Gradient& dw, const at::Tensor& dy, const at::Tensor& x, bool in_out) {
  const auto dtype = compute_dtype(operation, "x", x);
  check_dims(operation, "x", x, 2);
  check_dims(operation, "dy", dy, 2);
  const int64_t inputs = x.size(1), outputs = dy.size(1);
  check_tensor(operation, "x", x, x.sizes(), dtype);
  check_tensor(operation, "dy", dy, {x.size(0), outputs}, dtype);
  check_gradient(operation, "dw", dw, {in_out ? inputs : outputs, in_out ? outputs : inputs}, dtype);
}

}  // namespace

void linear_forward(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w) {
  check_linear({"linear_forward", "y", "x", "w"}, y, x, w, false);
  multiply(y, x, w.t());
}

void linear_backward_input(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& w) {
  check_linear({"linear_backward_input", "dy", "dx", "w"}, dy, dx, w, false);
  multiply(dx, dy, w);
}

void linear_backward_weight(const Gradient& dw, const at::Tensor& dy, const at::Tensor& x) {
  if (!dw.defined()) return;
  check_weight("linear_backward_weight", dw, dy, x, false);
  multiply(dw.to, dy.t(), x, dw.accumulate);
}

void linear_in_out_forward(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w) {
  check_linear({"linear_in_out_forward", "y", "x", "w"}, y, x, w, true);
  multiply(y, x, w);
}

void linear_in_out_backward_input(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& w) {
  check_linear({"linear_in_out_backward_input", "dy", "dx", "w"}, dy, dx, w, true);
  multiply(dx, dy, w.t());
}

void linear_in_out_backward_weight(const Gradient& dw, const at::Tensor& dy, const at::Tensor& x) {
  if (!dw.defined()) return;
  check_weight("linear_in_out_backward_weight", dw, dy, x, true);
  multiply(dw.to, x.t(), dy, dw.accumulate);
}

}  // namespace trireme::ops
