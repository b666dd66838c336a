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
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, double eps, double weight_offset = 0);
/// qkv [T, R] with the q heads normalised with w_q [d], the k heads with w_k [d].
at::Tensor head_norm(const at::Tensor& qkv, const at::Tensor& w_q, const at::Tensor& w_k, int64_t num_heads,
                     int64_t num_kv_heads, double eps, double weight_offset = 0);
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps);

at::Tensor swiglu(const at::Tensor& gate_up);
at::Tensor geglu(const at::Tensor& gate_up);
at::Tensor gelu(const at::Tensor& x);  ///< tanh approximation
at::Tensor softcap(const at::Tensor& x, double cap);  ///< 0: none
at::Tensor accumulate(const at::Tensor& sum, const at::Tensor& x);

/// attention_factor times cosine and sine [S, d/2] in float64, of angles rounded to float32.
std::pair<at::Tensor, at::Tensor> rotary_table(const at::Tensor& inverse_frequencies, double attention_factor,
                                               int64_t sequence, int64_t first_position);
at::Tensor rotary(const at::Tensor& qkv, const at::Tensor& cosine, const at::Tensor& sine, int64_t num_heads,
                  int64_t num_kv_heads);

/// Softmax attention of q [B,Q,H*d] to kv [B,N,2*K*d], all scores at once: out [B,Q,H*d] and lse [B,H,Q]. `hidden`
/// [Q,N] bool (undefined: none) says which keys a query does not see; a softcap of 0 is none.
std::pair<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& kv, int64_t num_heads,
                                            int64_t num_kv_heads, double scale, const at::Tensor& hidden = {},
                                            double softcap = 0);
/// Two results of attention to different keys, as one of attention to all of them.
std::pair<at::Tensor, at::Tensor> merge_attention(const std::pair<at::Tensor, at::Tensor>& a,
                                                  const std::pair<at::Tensor, at::Tensor>& b);

/// positions may be undefined, and so may position_ids; an id of -1 reads as zeros.
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions, int64_t sequence,
                     const at::Tensor& position_ids = {}, double scale = 1);

/// Sum of the losses of x w^T against targets; -100 is not supervised.
at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& w, const at::Tensor& targets, double softcap = 0);
/// The same from logits [T, V'], of which only the first `vocabulary` columns count.
at::Tensor cross_entropy_of_logits(const at::Tensor& logits, const at::Tensor& targets, int64_t vocabulary,
                                   double softcap_at = 0);

}  // namespace trireme::ops::reference
