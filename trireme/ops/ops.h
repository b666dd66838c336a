// Operations: pairs of plain functions over tensors the caller provides. Nothing here allocates a value
// that outlives the call; every output and every scratch tensor is an argument.
//
// Legend    T tokens (batch x sequence), D width, B batch rows, S sequence, H query heads, K key/value heads,
//           d head dim, F MLP width, V vocabulary, R = (H + 2 K) d row length of the packed q|k|v projection.
// dtypes    `x`-like tensors are of the compute dtype: float64, float32 or bfloat16. Statistics (rstd, mean,
//           lse) and losses are float32 (float64 when the compute dtype is float64). Arithmetic inside is in
//           that wider dtype; results are rounded once. Weights have the compute dtype.
// Layout    every tensor is contiguous, where nothing else is said.
// Gradients of weights are written into the tensor given, or added to what it holds: Gradient.
// Each function has a reference in ops/reference.h, in terms of ATen, used only by tests.
// Threads   results do not depend on LibTorch's number of threads; matrix products where LibTorch makes them may.
// Name      call them as ops::...: LibTorch has functions of the same names, which argument lookup would find too.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "trireme/ops/gradient.h"

namespace trireme::ops {

// ---- linear (ops/linear.cpp, ops/bias.cpp; products in ops/products.h) ----
/// y [T,N] = x [T,M] w [N,M]^T
void linear_forward(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w);
/// dx [T,M] = dy [T,N] w [N,M]
void linear_backward_input(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& w);
/// dw [N,M] = dy [T,N]^T x [T,M]
void linear_backward_weight(const Gradient& dw, const at::Tensor& dy, const at::Tensor& x);
/// The same for a weight stored [in, out] (GPT-2's Conv1D): y [T,N] = x [T,M] w [M,N]
void linear_in_out_forward(const at::Tensor& y, const at::Tensor& x, const at::Tensor& w);
void linear_in_out_backward_input(const at::Tensor& dx, const at::Tensor& dy, const at::Tensor& w);
void linear_in_out_backward_weight(const Gradient& dw, const at::Tensor& dy, const at::Tensor& x);
/// y [T,N] += bias [N], in place.
void bias_forward(const at::Tensor& y, const at::Tensor& bias);
/// dbias [N] = sum over T of dy [T,N], summed in the wider dtype.
void bias_backward(const Gradient& dbias, const at::Tensor& dy);

// ---- normalisation (ops/norm.cpp) ----
/// y [T,D] = x * rstd * (weight_offset + w), rstd [T] = 1/sqrt(mean(x^2) + eps). Gemma stores its weights as distances
/// from 1.
void rms_norm_forward(const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x, const at::Tensor& w, double eps,
                      double weight_offset = 0);
/// sum [T,D] = x + residual (may be either of them); then y, rstd = rms_norm(sum).
void add_rms_norm_forward(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x,
                          const at::Tensor& residual, const at::Tensor& w, double eps, double weight_offset = 0);
/// dx [T,D] = gradient through the norm + d_residual (undefined: 0; may be dx); dw [D]; and y [T,D] is
/// emitted again (it may be the tensor dy: then dy is overwritten), so that no forward output is saved.
void rms_norm_backward(const at::Tensor& dx, const Gradient& dw, const at::Tensor& y, const at::Tensor& dy,
                       const at::Tensor& x, const at::Tensor& w, const at::Tensor& rstd, const at::Tensor& d_residual,
                       double weight_offset = 0);
/// LayerNorm with weight and bias; mean, rstd [T]. Same conventions as the three above.
void layer_norm_forward(const at::Tensor& y, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& x,
                        const at::Tensor& w, const at::Tensor& b, double eps);
void add_layer_norm_forward(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& mean, const at::Tensor& rstd,
                            const at::Tensor& x, const at::Tensor& residual, const at::Tensor& w, const at::Tensor& b,
                            double eps);
void layer_norm_backward(const at::Tensor& dx, const Gradient& dw, const Gradient& db, const at::Tensor& y,
                         const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
                         const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& d_residual);

// ---- query-key norm (ops/head_norm.cpp), before rotary ----
/// RMSNorm over each q head with w_q [d] and each k head with w_k [d] of qkv [T, R], in place; its v part stays.
/// y = x * rstd * (weight_offset + w), rstd [T, H+K] = 1/sqrt(mean(x^2) + eps).
///
/// Shapes    raw [T, (H+K) d]: what the q and k parts held is copied there for the backward; undefined: it is not kept
void head_norm_forward(const at::Tensor& qkv, const at::Tensor& raw, const at::Tensor& rstd, const at::Tensor& w_q,
                       const at::Tensor& w_k, int64_t num_heads, int64_t num_kv_heads, double eps,
                       double weight_offset = 0);
/// The q and k parts of dqkv [T, R] become gradients of what was normalised, in place; dw_q, dw_k [d] are sums over
/// rows and heads.
void head_norm_backward(const at::Tensor& dqkv, const Gradient& dw_q, const Gradient& dw_k, const at::Tensor& raw,
                        const at::Tensor& rstd, const at::Tensor& w_q, const at::Tensor& w_k, int64_t num_heads,
                        int64_t num_kv_heads, double weight_offset = 0);

// ---- element-wise (ops/elementwise.cpp, ops/accumulate.cpp) ----
/// y = a + b; y may be a or b.
void add_forward(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b);
/// sum += x over all elements, of any one shape: adds a gradient to a longer-lived buffer.
///
/// Numerics  adds in the wider dtype, one rounding to sum's; bits do not depend on threads
/// Errors    ShapeError unless both are contiguous, of one shape, and sum's dtype is x's, the statistics dtype of x, or
///           float64
void accumulate(const at::Tensor& sum, const at::Tensor& x);
/// y [T,F] = silu(gate) * up, where gate_up [T,2F] holds gate | up in each row.
void swiglu_forward(const at::Tensor& y, const at::Tensor& gate_up);
/// gate_up is overwritten by its gradient; dy is overwritten by y (recomputed), the input of the next product.
void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& dy);
/// The same with gelu_tanh in the place of silu (Gemma).
void geglu_forward(const at::Tensor& y, const at::Tensor& gate_up);
void geglu_backward(const at::Tensor& gate_up, const at::Tensor& dy);
/// y [T,F] = gelu_tanh(x).
void gelu_forward(const at::Tensor& y, const at::Tensor& x);
/// x is overwritten by its gradient; dy is overwritten by y (recomputed).
void gelu_backward(const at::Tensor& x, const at::Tensor& dy);
/// x = cap tanh(x / cap), in place (Gemma 2's final logits). 0 stands for no cap.
void softcap_forward(const at::Tensor& x, double cap);

// ---- rotary positions (ops/rotary.cpp), half-split as in Hugging Face ----
/// Fills cosine, sine [S, d/2] (statistics dtype) for positions first_position..: attention_factor times cosine and
/// sine of position * inverse_frequencies[i] (model/rotary_frequencies.h).
///
/// Numerics  the angle is a product rounded to float32, also where the tables are float64: models are trained with such
///           angles (transformers), and at position 131071 the rounding is up to 0.004. Cosine and sine of it are exact
///           to the last bit or so. Positions beyond 2^24 are refused, they have no float32
/// Errors    ShapeError naming the tensor, the number of frequencies or the position
void rotary_table(const at::Tensor& cosine, const at::Tensor& sine, std::span<const double> inverse_frequencies,
                  double attention_factor, int64_t first_position);
/// Rotates the q and k parts of qkv [B*S, R] in place; row t has position t % S, or with `position_ids` [T] int64
/// position_ids[t], a row of the tables.
/// Errors    ShapeError naming the tensor, or the first position outside the tables
void rotary_forward(const at::Tensor& qkv, const at::Tensor& cosine, const at::Tensor& sine, int64_t num_heads,
                    int64_t num_kv_heads, const at::Tensor& position_ids = {});
void rotary_backward(const at::Tensor& dqkv, const at::Tensor& cosine, const at::Tensor& sine, int64_t num_heads,
                     int64_t num_kv_heads, const at::Tensor& position_ids = {});

// ---- attention (ops/attention.cpp) ----
struct AttentionShape {
  int64_t batch = 1;
  int64_t sequence = 1;
  int64_t num_heads = 1;
  int64_t num_kv_heads = 1;
  int64_t head_dim = 64;
  double scale = 0;  ///< 0: 1/sqrt(head_dim)
  int64_t window = 0;  ///< keys that a query sees, itself included (Hugging Face's sliding_window); 0: no limit
  double softcap =
      0;  ///< scaled scores become softcap * tanh(score / softcap), before the mask (Gemma 2); 0: they stay
};
/// Bytes of scratch that forward and backward need per call (0 is legal). Window and documents change nothing.
int64_t attention_workspace_bytes(const AttentionShape& shape, at::ScalarType dtype);
/// Causal attention on the packed rows qkv [B*S, R] (q heads | k heads | v heads), in place of nothing:
/// out [B*S, H*d], lse [B, H, S] = log-sum-exp of the scaled (and capped) scores.
///
/// Shapes    starts int64 [B*S] or [B, S], or undefined: the position at which row i's document starts in its own
///           sequence, never falling along it, starts[i] <= i. Query i sees the keys
///           max(starts[i], i - window + 1) .. i
/// Cost      2 B H S^2 d operations, with a window w about 4 B H S w d: blocks that nobody sees are skipped
/// Numerics  inside in the statistics dtype, out is rounded once. Bits do not depend on threads; a window or documents
///           that hide nothing change none
/// Errors    ShapeError naming the tensor, the number or the entry of starts, before anything is written
void attention_forward(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& qkv, const AttentionShape& shape,
                       const at::Tensor& workspace, const at::Tensor& starts = {});
/// dqkv [B*S, R] from d_out, out, lse and qkv, and the forward's shape and starts: 2.5 times its operations, 3.5 times
/// where there are at least two threads per batch row and kv head.
void attention_backward(const at::Tensor& dqkv, const at::Tensor& d_out, const at::Tensor& out, const at::Tensor& lse,
                        const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& workspace,
                        const at::Tensor& starts = {});

// ---- attention over a block of keys without a mask (ops/attention_block.cpp): what ring attention computes off the
// diagonal. The caller starts with attention_forward on its own rows and merges one block after another.
struct AttentionBlockShape {
  int64_t batch = 1;
  int64_t queries = 1;  ///< Q, rows of q per batch row
  int64_t keys = 1;  ///< N, rows of kv per batch row
  int64_t num_heads = 1;
  int64_t num_kv_heads = 1;
  int64_t head_dim = 64;
  double scale = 0;  ///< 0: 1/sqrt(head_dim)
  double softcap = 0;  ///< as in AttentionShape
};
/// Bytes of scratch that forward and backward need per call.
int64_t attention_block_workspace_bytes(const AttentionBlockShape& shape, at::ScalarType dtype);
/// Attends from every query to every key, and merges with what `out` and `lse` hold of the keys seen before:
/// out = sum over blocks j of exp(lse_j - lse) out_j, lse = log of the sum over j of exp(lse_j).
///
/// Shapes    q, out [B, Q, H*d]; kv [B, N, 2*K*d] (k heads | v heads); lse [B, H, Q]. Query head h reads kv head
///           h / (H/K). Views will do: the last dimension is contiguous, the other strides are free, so that a view
///           may be a slice of packed rows or half the rows of each sequence
/// Cost      4 B H Q N d operations; scores exist in tiles of 64 x 128; packs k and v once per kv head
/// Numerics  inside in the statistics dtype, out is rounded to the compute dtype once per call; lse must be finite, or
///           -inf where out is 0 and nothing was held. Bits do not depend on threads
/// Errors    ShapeError naming the tensor or the number, before anything is written
/// Source    Liu et al., Ring Attention (2023); the kernel is attention_forward's
void attention_block_forward(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& q, const at::Tensor& kv,
                             const AttentionBlockShape& shape, const at::Tensor& workspace);
/// *Adds* this block's part of the gradient to dq and dkv, given the final out and lse of all blocks.
///
/// Shapes    dq, d_out as q; dkv as kv; views as above. dq and dkv are of the statistics dtype
/// Cost      10 B H Q N d operations; recomputes the probabilities from lse
/// Numerics  the part is summed in the statistics dtype and then added once
/// Errors    as attention_block_forward
void attention_block_backward(const at::Tensor& dq, const at::Tensor& dkv, const at::Tensor& d_out,
                              const at::Tensor& out, const at::Tensor& lse, const at::Tensor& q, const at::Tensor& kv,
                              const AttentionBlockShape& shape, const at::Tensor& workspace);

// ---- embedding (ops/embedding.cpp) ----
/// y [T,D] = scale table[ids] (+ positions[t % S] where `positions` [S',D] is defined). ids [T] int64; an id of -1
/// stands for a row that another rank holds, and reads as zeros. With `position_ids` [T] int64, row t has the position
/// position_ids[t] instead of t % S; not read where `positions` is undefined.
/// Errors    ShapeError naming the first id outside the table, or the first position outside `positions`
void embedding_forward(const at::Tensor& y, const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions,
                       int64_t sequence, const at::Tensor& position_ids = at::Tensor(), double scale = 1);
/// dtable [V,D] (every row is written, or those of no id left as they are), and d_positions where defined. Repeated
/// ids are summed in the wider dtype in the order of t, the sum multiplied by scale and rounded once, onto what it is
/// added to; ids of -1 are left out of dtable. order [T] int64 is scratch.
void embedding_backward(const Gradient& dtable, const Gradient& d_positions, const at::Tensor& dy,
                        const at::Tensor& ids, const at::Tensor& order, int64_t sequence,
                        const at::Tensor& position_ids = at::Tensor(), double scale = 1);

// ---- cross-entropy over the head product, in row chunks (ops/cross_entropy.cpp) ----
/// Scratch for cross_entropy: logits of one chunk of rows, [chunk_rows, V] in the compute dtype. About 8 Mi logits
/// (16 MiB in bfloat16), at least 256 rows, all tokens if they fit.
int64_t cross_entropy_chunk_rows(int64_t num_tokens, int64_t vocabulary);
/// Loss of logits = x [T,D] w [V,D]^T against targets [T] int64 (-100: not supervised).
/// loss_sum [1] float64 = sum of the losses (not the mean), written. With softcap > 0 the logits go through
/// softcap_forward(logits, softcap) first.
/// Numerics  the softmax runs in the statistics dtype on the rounded logits; the sum is over t in order
void cross_entropy_forward(const at::Tensor& loss_sum, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& targets, const at::Tensor& logits_chunk, double softcap = 0);
/// The same, and gradients of scale * loss_sum: dx [T,D] and dw [V,D]. x may be dx.
/// A bfloat16 dw is summed over chunks in `dw_sum` [V,D] float32 (undefined when one chunk covers T); float32 and
/// float64 sum in dw itself and leave dw_sum alone.
void cross_entropy_forward_backward(const at::Tensor& loss_sum, const at::Tensor& dx, const Gradient& dw,
                                    const at::Tensor& x, const at::Tensor& w, const at::Tensor& targets, double scale,
                                    const at::Tensor& logits_chunk, const at::Tensor& dw_sum, double softcap = 0);

// ---- cross-entropy over a vocabulary cut by columns, in phases (ops/cross_entropy_shard.cpp) ----
// For one chunk of rows: softcap_forward where logits are capped, _max, all-reduce (max) row_max, _sum, all-reduce
// (sum) sum_exp and target_logit, _loss, _backward. With one rank the bits are those of cross_entropy_forward_backward.
// Shapes    logits [rows, n]: columns first .. first + n - 1 of the head product, in the compute dtype; those at or
//           beyond `vocabulary`, the true size, are padding. row_max, sum_exp, target_logit [rows], statistics dtype.
//           targets [rows] int64: ids of the whole vocabulary, -100: not supervised
// Numerics  exponentials and sums in the statistics dtype
// Errors    ShapeError naming the tensor, or the first target that is neither -100 nor in the vocabulary

/// row_max = largest logit of each row; -inf if this rank holds padding only.
void cross_entropy_shard_max(const at::Tensor& row_max, const at::Tensor& logits, int64_t first, int64_t vocabulary);
/// sum_exp = sum of exp(logit - row_max) over this rank's columns; target_logit = the target's logit, 0 where another
/// rank holds it. Both are 0 in rows that are not supervised. row_max is that of all ranks.
void cross_entropy_shard_sum(const at::Tensor& sum_exp, const at::Tensor& target_logit, const at::Tensor& logits,
                             const at::Tensor& row_max, const at::Tensor& targets, int64_t first, int64_t vocabulary);
/// *Adds* the sum over supervised rows of log(sum_exp) + row_max - target_logit, all of them reduced, to loss_sum [1]
/// float64, row after row.
void cross_entropy_shard_loss(const at::Tensor& loss_sum, const at::Tensor& row_max, const at::Tensor& sum_exp,
                              const at::Tensor& target_logit, const at::Tensor& targets);
/// logits are overwritten by the gradient of scale * loss: scale (exp(logit - row_max) / sum_exp - onehot(target)).
/// Padding columns and rows that are not supervised get 0. With softcap > 0 the logits are those that softcap_forward
/// has left, and the gradient is that of the logits before it: times 1 - (logit / softcap)^2.
void cross_entropy_shard_backward(const at::Tensor& logits, const at::Tensor& row_max, const at::Tensor& sum_exp,
                                  const at::Tensor& targets, double scale, int64_t first, int64_t vocabulary,
                                  double softcap = 0);

}  // namespace trireme::ops
