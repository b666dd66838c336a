// The slow reference of every operation: forward in terms of ATen's differentiable operators, written to be
// read. Tests compare ops.h with these, and get reference gradients by LibTorch's autograd through them.
// Shapes and letters as in ops.h. Nothing outside tests links this library.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace trireme::ops::reference {

at::Tensor linear(const at::Tensor& x, const at::Tensor& w);         ///< w [N,M]
at::Tensor linear_in_out(const at::Tensor& x, const at::Tensor& w);  ///< w [M,N]
at::Tensor bias(const at::Tensor& y, const at::Tensor& bias);

at::Tensor rms_norm_rstd(const at::Tensor& x, double eps);
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, double eps);
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps);

at::Tensor swiglu(const at::Tensor& gate_up);
at::Tensor gelu(const at::Tensor& x);  ///< tanh approximation

/// Cosine and sine [S, d/2] in float64.
std::pair<at::Tensor, at::Tensor> rotary_table(int64_t sequence, int64_t head_dim, double theta,
                                               int64_t first_position);
at::Tensor rotary(const at::Tensor& qkv, const at::Tensor& cosine, const at::Tensor& sine, int64_t num_heads,
                  int64_t num_kv_heads);

/// positions may be undefined.
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions, int64_t sequence);

/// Sum of the losses of x w^T against targets; -100 is not supervised.
at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& w, const at::Tensor& targets);

}  // namespace trireme::ops::reference
