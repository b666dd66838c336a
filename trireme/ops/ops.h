// Operations: plain functions in pairs (forward, backward) on tensors that the caller provides. No function allocates a
// value that outlives the call: every output and every scratch tensor is an argument.
//
// Legend    T tokens (batch x sequence), D width, B batch rows, S sequence, H query heads, K key/value heads,
//           d head dim, F MLP width, V vocabulary, R = (H + 2 K) d row length of the packed q|k|v projection.
// dtypes    activations and weights have the compute dtype: float64, float32, bfloat16 or float16. Statistics (rstd,
// mean, lse)
//           have the statistics dtype: float32, or float64 if the compute dtype is float64. Operations compute in this
//           wider dtype and round results once. Sums of losses are float64.
// Layout    every tensor is contiguous unless something else is said.
// Gradients of weights go into a Gradient: written to its tensor or added to it; without a tensor, not computed.
// Reference tests/ops/reference.h has each function in terms of ATen, for tests.
// Threads   results do not depend on LibTorch's number of threads, except for matrix products that LibTorch computes.
// Name      call them as ops::NAME. LibTorch has functions of the same names, which C++ would find, too (ADL).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "trireme/ops/gradient.h"

namespace trireme::ops {

// ---- linear (ops/products/linear.cpp, ops/elementwise/bias.cpp; products in ops/products/products.h) ----
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

// ---- normalisation (ops/norm/norm.cpp) ----
/// y [T,D] = x * rstd * (weight_offset + w), rstd [T] = 1/sqrt(mean(x^2) + eps). Gemma's weight_offset is 1.
void rms_norm_forward(const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x, const at::Tensor& w, double eps,
                      double weight_offset = 0);
/// sum [T,D] = x + residual, then y, rstd = rms_norm(sum). `sum` may be the tensor x or residual.
void add_rms_norm_forward(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& rstd, const at::Tensor& x,
                          const at::Tensor& residual, const at::Tensor& w, double eps, double weight_offset = 0);
/// dx [T,D] = gradient through the norm + d_residual, and dw [D]. d_residual may be the tensor dx, or undefined (0). y
/// [T,D] is computed again, so the caller need not save it. y may be the tensor dy, which is then overwritten.
void rms_norm_backward(const at::Tensor& dx, const Gradient& dw, const at::Tensor& y, const at::Tensor& dy,
                       const at::Tensor& x, const at::Tensor& w, const at::Tensor& rstd, const at::Tensor& d_residual,
                       double weight_offset = 0);
/// LayerNorm with weight and bias; mean, rstd [T]. The conventions are those of the three functions above.
void layer_norm_forward(const at::Tensor& y, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& x,
                        const at::Tensor& w, const at::Tensor& b, double eps);
void add_layer_norm_forward(const at::Tensor& sum, const at::Tensor& y, const at::Tensor& mean, const at::Tensor& rstd,
                            const at::Tensor& x, const at::Tensor& residual, const at::Tensor& w, const at::Tensor& b,
                            double eps);
void layer_norm_backward(const at::Tensor& dx, const Gradient& dw, const Gradient& db, const at::Tensor& y,
                         const at::Tensor& dy, const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
                         const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& d_residual);

// ---- query-key norm (ops/norm/head_norm.cpp), before rotary ----
/// RMSNorm over each head of qkv [T, R], in place: q heads with w_q [d], k heads with w_k [d]. The v part is unchanged.
/// y = x * rstd * (weight_offset + w), rstd [T, H+K] = 1/sqrt(mean(x^2) + eps).
///
/// Shapes    raw [T, (H+K) d] receives a copy of the old q and k parts for the backward, if it is defined
void head_norm_forward(const at::Tensor& qkv, const at::Tensor& raw, const at::Tensor& rstd, const at::Tensor& w_q,
                       const at::Tensor& w_k, int64_t num_heads, int64_t num_kv_heads, double eps,
                       double weight_offset = 0);
/// The q and k parts of dqkv [T, R] become the gradients of `raw`, in place; dw_q, dw_k [d] are sums over rows and
/// heads.
void head_norm_backward(const at::Tensor& dqkv, const Gradient& dw_q, const Gradient& dw_k, const at::Tensor& raw,
                        const at::Tensor& rstd, const at::Tensor& w_q, const at::Tensor& w_k, int64_t num_heads,
                        int64_t num_kv_heads, double weight_offset = 0);

// ---- the same over all heads together (ops/norm/wide_norm.cpp); processors only ----
/// sums [T, 2] = sums of the squares of q [T, Q] and k [T, K], the first Q + K columns of qkv [T, R]. Ranks that divide
/// the heads add their sums.
void wide_norm_squares(const at::Tensor& sums, const at::Tensor& qkv, int64_t q_width, int64_t kv_width);
/// q and k become x * rstd * w, in place, with w_q [Q], w_k [K], rstd [T, 2] = 1/sqrt(sums / whole width + eps).
///
/// Shapes    raw [T, Q + K] receives a copy of the old q and k parts for the backward, if it is defined
/// Numerics  bits do not depend on threads
void wide_norm_forward(const at::Tensor& qkv, const at::Tensor& raw, const at::Tensor& rstd, const at::Tensor& sums,
                       const at::Tensor& w_q, const at::Tensor& w_k, int64_t whole_q_width, int64_t whole_kv_width,
                       double eps);
/// sums [T, 2] = sums of dy * w * raw over q and k; ranks add theirs. Also writes dw_q [Q], dw_k [K]: sums over rows.
void wide_norm_backward_sums(const at::Tensor& sums, const Gradient& dw_q, const Gradient& dw_k, const at::Tensor& dqkv,
                             const at::Tensor& raw, const at::Tensor& rstd, const at::Tensor& w_q,
                             const at::Tensor& w_k);
/// The q and k parts of dqkv become the gradients of `raw`, in place.
void wide_norm_backward(const at::Tensor& dqkv, const at::Tensor& sums, const at::Tensor& raw, const at::Tensor& rstd,
                        const at::Tensor& w_q, const at::Tensor& w_k, int64_t whole_q_width, int64_t whole_kv_width);

// ---- element-wise (ops/elementwise/elementwise.cpp) ----
/// y = a + b; y may be a or b.
void add_forward(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b);
/// sum += x, for any shape. Adds a gradient to a buffer that lives longer.
///
/// Numerics  adds in the wider dtype and rounds once to the dtype of sum; bits do not depend on threads
/// Errors    ShapeError unless both are contiguous and of one shape, and the dtype of sum is that of x, the statistics
///           dtype of x, or float64
void accumulate(const at::Tensor& sum, const at::Tensor& x);
/// Which elements of x [T,M] are dropped. Element (t, j) is kept if hash(keys[t] + (first_column + j) 0x9E3779B9), 32
/// bits, is at least p 2^32, and is then multiplied by 1 / (1 - p). The hash is lowbias32 (Ettinger 2018). So the mask
/// is a pure function: it needs no memory, and recomputation, meshes and resumes cannot change it.
struct DropoutMask {
  double p = 0;  ///< 0: nothing is dropped
  at::Tensor keys = {};  ///< [T] int32, used as 32 bits; may be undefined if p is 0
  int64_t first_column = 0;  ///< the column of the whole tensor that x begins with
};
/// y [T,M] = mask * x / (1 - p). Processors only, like a mask in add_product.
void dropout_forward(const at::Tensor& y, const at::Tensor& x, const DropoutMask& mask);
/// y [T,M] += bound * u, with u uniform in [-1, 1): 2 hash 2^-32 - 1, with the hash of DropoutMask. keys [T] int32.
/// Processors only.
void add_uniform_noise(const at::Tensor& y, const at::Tensor& keys, double bound);
/// y [T,N] += mask * (a [T,K] b [K,N]) / (1 - p). The rows of y may lie apart.
///
/// Scratch   `wide` [n] of the statistics dtype holds n / N rows of the product at a time, at least one. It is not used
///           for float32 and float64 without a mask
/// Numerics  the product is added in the wider dtype, and rounded once
void add_product(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b, const at::Tensor& wide,
                 const DropoutMask& mask = {});
/// y [T,N] = x * (factors [N] + shift), or with `adds` y += the same: each column has a factor of its own (DoRA).
/// factors have the statistics dtype. The rows of x and y may lie apart; y may be x. Processors only.
void scale_columns(const at::Tensor& y, const at::Tensor& x, const at::Tensor& factors, double shift = 0,
                   bool adds = false);
/// squares [N] = squared norms of the rows of w + scale * b a, for w [N,M], b [N,K], a [K,M]. With `in_out` w is stored
/// [M,N]. Processors only.
///
/// dtypes    squares and `wide` have the statistics dtype
/// Scratch   `wide` [n] holds n / w.size(1) rows of the product at a time, at least one
/// Numerics  bits do not depend on threads
void merged_squares(const at::Tensor& squares, const at::Tensor& w, const at::Tensor& b, const at::Tensor& a,
                    double scale, bool in_out, const at::Tensor& wide);
/// y [T,F] = silu(gate) * up, where gate_up [T,2F] holds gate | up in each row.
void swiglu_forward(const at::Tensor& y, const at::Tensor& gate_up);
/// Overwrites gate_up with its gradient, and dy with y, computed again: the next linear layer's weight gradient needs
/// y.
void swiglu_backward(const at::Tensor& gate_up, const at::Tensor& dy);
/// The same with gelu_tanh instead of silu (Gemma).
void geglu_forward(const at::Tensor& y, const at::Tensor& gate_up);
void geglu_backward(const at::Tensor& gate_up, const at::Tensor& dy);
/// y [T,F] = gelu_tanh(x).
void gelu_forward(const at::Tensor& y, const at::Tensor& x);
/// Overwrites x with its gradient, and dy with y, computed again.
void gelu_backward(const at::Tensor& x, const at::Tensor& dy);
/// The exact GELU, x/2 (1 + erf(x / sqrt 2)), or max(x, 0); as the two above. Processors only.
/// Numerics  float32 within 1e-5 of the value plus 1e-6; float64 as std::erf (tests/ops/gelu_test.cpp)
enum class PlainActivation { kGeluExact, kRelu };
void plain_forward(PlainActivation activation, const at::Tensor& y, const at::Tensor& x);
void plain_backward(PlainActivation activation, const at::Tensor& x, const at::Tensor& dy);
/// x = cap tanh(x / cap), in place (Gemma 2's final logits). With a cap of 0, x is unchanged.
void softcap_forward(const at::Tensor& x, double cap);

// ---- rotary positions (ops/elementwise/rotary.cpp), half-split as in Hugging Face ----
/// Fills cosine, sine [S, d/2] (statistics dtype) for the positions from first_position on: attention_factor times
/// cosine and sine of position * inverse_frequencies[i] (model/rotary_frequencies.h).
///
/// Numerics  the angle is rounded to float32 even if the tables are float64, because models are trained with such
///           angles (Hugging Face transformers). At position 131071 the rounding error is up to 0.004. Cosine and sine
///           are exact to about the last bit. Positions beyond 2^24 are refused: float32 cannot represent them
/// Errors    ShapeError naming the tensor, the number of frequencies or the position
void rotary_table(const at::Tensor& cosine, const at::Tensor& sine, std::span<const double> inverse_frequencies,
                  double attention_factor, int64_t first_position);
/// Rotates the q and k parts of qkv [B*S, R] in place. Row t has position t % S, or position_ids[t] if `position_ids`
/// [T] int64 is defined. If the tables are narrower than half a head, only the first elements of each head turn.
/// Errors    ShapeError naming the tensor, or the first position outside the tables
void rotary_forward(const at::Tensor& qkv, const at::Tensor& cosine, const at::Tensor& sine, int64_t num_heads,
                    int64_t num_kv_heads, const at::Tensor& position_ids = {});
void rotary_backward(const at::Tensor& dqkv, const at::Tensor& cosine, const at::Tensor& sine, int64_t num_heads,
                     int64_t num_kv_heads, const at::Tensor& position_ids = {});

// ---- attention (ops/attention/attention.cpp) ----
/// Dropout of attention's weights, after the softmax: its sum is that of all weights, as in PyTorch. Key j's weight in
/// query t and head h is kept if hash(hash(keys[t] + (first_head + h) G) + position(j) G), 32 bits, is at least p 2^32,
/// and is then multiplied by 1 / (1 - p). G = 0x9E3779B9, and the hash is that of DropoutMask. So the mask needs no
/// memory, and forward and backward compute it tile by tile. Processors only.
///
/// Shapes    position(j) = first_key + j, and from j = `split` on later_key + j - split: a rank of ring attention holds
///           two pieces of a sequence
struct AttentionDropout {
  double p = 0;  ///< 0: nothing is dropped
  at::Tensor keys = {};  ///< int32 of each query: [B*Q], or [B, Q] whose batch rows may lie apart
  int64_t first_head = 0;  ///< the number, in the whole model, of the first query head
  int64_t first_key = 0, split = INT64_MAX, later_key = 0;
};

struct AttentionKernel;  ///< attention/kernels.h. A null `kernel` below means the best one; only tests pass another
struct AttentionShape {
  int64_t batch = 1;
  int64_t sequence = 1;
  int64_t num_heads = 1;
  int64_t num_kv_heads = 1;
  int64_t head_dim = 64;
  double scale = 0;  ///< 0: 1/sqrt(head_dim)
  int64_t window = 0;  ///< keys that a query sees, itself included (Hugging Face's sliding_window); 0: no limit
  double softcap = 0;  ///< not 0: scaled scores become softcap * tanh(score / softcap) before the mask (Gemma 2)
  bool bidirectional = false;  ///< a query sees the later keys of its document too; CPU only
  AttentionDropout dropout = {};
};
/// Bytes of scratch for a forward or backward call on the CPU. They do not depend on window and documents.
int64_t attention_workspace_bytes(const AttentionShape& shape, at::ScalarType dtype);
/// Bytes of workspace with which the backward on a GPU allocates nothing, if the call has no documents. `any_order`:
/// gradients may be added in an order that differs from run to run; a fixed one takes more (attention/cudnn.h).
int64_t attention_gpu_workspace_bytes(const AttentionShape& shape, at::ScalarType dtype, bool any_order);
/// Attention on the packed rows qkv [B*S, R] (q heads | k heads | v heads): out [B*S, H*d], lse [B, H, S] = log-sum-exp
/// of the scaled (and capped) scores. It is causal, unless shape.bidirectional.
///
/// Shapes    starts int64 [B*S] or [B, S] says for each row where its document starts, as a position in the sequence.
///           At position i starts[i] <= i, and starts never falls along a sequence. Query i sees the keys
///           max(starts[i], i - window + 1) .. i. Undefined: a sequence is one document. Bidirectional: query i sees
///           the keys from starts[i] to the last with the same start
/// Cost      2 B H S^2 d operations, or about 4 B H S w d with a window w, because blocks that no query sees are
///           skipped; twice as many if bidirectional
/// Numerics  computes in the statistics dtype and rounds `out` once. Bits do not depend on threads. A window or
///           documents that hide nothing change no bits
/// Errors    ShapeError naming the tensor, the number or the entry of starts, before anything is written; for a
///           bidirectional call with a window, or on a GPU
void attention_forward(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& qkv, const AttentionShape& shape,
                       const at::Tensor& workspace, const at::Tensor& starts = {},
                       const AttentionKernel* kernel = nullptr);
/// dqkv [B*S, R] from d_out, out, lse and qkv, with the forward's shape and starts. It costs 2.5 times the forward's
/// operations, or 3.5 times with at least two threads per batch row and kv head.
void attention_backward(const at::Tensor& dqkv, const at::Tensor& d_out, const at::Tensor& out, const at::Tensor& lse,
                        const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& workspace,
                        const at::Tensor& starts = {}, const AttentionKernel* kernel = nullptr);

// ---- attention over a block of keys without a mask (ops/attention/block.cpp): ring attention's blocks off the
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
  AttentionDropout dropout = {};  ///< of this block; `out` and `lse` are merged as without
};
/// Bytes of scratch that forward and backward need per call.
int64_t attention_block_workspace_bytes(const AttentionBlockShape& shape, at::ScalarType dtype);
/// Attends from every query to every key, and merges the result with `out` and `lse` of the keys seen before:
/// out = sum over blocks j of exp(lse_j - lse) out_j, lse = log of the sum over j of exp(lse_j).
///
/// Shapes    q, out [B, Q, H*d]; kv [B, N, 2*K*d] (k heads | v heads); lse [B, H, Q]. Query head h reads kv head
///           h/(H/K). They may be views with a contiguous last dimension and any other strides: for example a slice of
///           packed rows, or half the rows of each sequence
/// Cost      4 B H Q N d operations; scores exist in tiles of 64 x 128; packs k and v once per kv head
/// Numerics  computes in the statistics dtype and rounds `out` to the compute dtype once per call. lse must be finite;
///           if no key was seen before, lse must be -inf and out 0. Bits do not depend on threads
/// Errors    ShapeError naming the tensor or the number, before anything is written
/// Source    Liu et al., Ring Attention (2023); the kernel is attention_forward's
void attention_block_forward(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& q, const at::Tensor& kv,
                             const AttentionBlockShape& shape, const at::Tensor& workspace,
                             const AttentionKernel* kernel = nullptr);
/// *Adds* this block's part of the gradient to dq and dkv, given the final out and lse of all blocks.
///
/// Shapes    dq and d_out have the shape of q, dkv that of kv; views as above. dq and dkv have the statistics dtype
/// Cost      10 B H Q N d operations; recomputes the probabilities from lse
/// Numerics  the part is summed in the statistics dtype and then added once
/// Errors    as attention_block_forward
void attention_block_backward(const at::Tensor& dq, const at::Tensor& dkv, const at::Tensor& d_out,
                              const at::Tensor& out, const at::Tensor& lse, const at::Tensor& q, const at::Tensor& kv,
                              const AttentionBlockShape& shape, const at::Tensor& workspace,
                              const AttentionKernel* kernel = nullptr);

// ---- embedding (ops/elementwise/embedding.cpp) ----
/// y [T,D] = scale table[ids] (+ positions[t % S] if `positions` [S',D] is defined). ids [T] int64; -1 means a row of
/// the table that another rank has: it counts as zeros here. With `position_ids` [T] int64, row t has the position
/// position_ids[t] instead of t % S; they are not read if `positions` is undefined.
/// Errors    ShapeError naming the first id outside the table, or the first position outside `positions`
void embedding_forward(const at::Tensor& y, const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions,
                       int64_t sequence, const at::Tensor& position_ids = at::Tensor(), double scale = 1);
/// dtable [V,D] and d_positions, each if it is defined. Without `accumulate` every row is written; with it, only rows
/// whose ids occur are added to. The rows of dy with one id are summed in the wider dtype in the order of t. The sum is
/// multiplied by scale, added to the old value and rounded once. Ids of -1 add nothing to dtable. order [T] int64 is
/// scratch.
void embedding_backward(const Gradient& dtable, const Gradient& d_positions, const at::Tensor& dy,
                        const at::Tensor& ids, const at::Tensor& order, int64_t sequence,
                        const at::Tensor& position_ids = at::Tensor(), double scale = 1);

/// The same look-up in a narrow table that is stored by columns, an embedding's A of LoRA: y [T,K] = scale
/// table[:, ids]^T for table [K,V]. Processors only.
void embedding_columns_forward(const at::Tensor& y, const at::Tensor& ids, const at::Tensor& table, double scale);
/// dtable [K,V], as dtable of embedding_backward: summed in the wider dtype in the order of t, rounded once.
/// order [T] int64 is scratch.
void embedding_columns_backward(const Gradient& dtable, const at::Tensor& dy, const at::Tensor& ids,
                                const at::Tensor& order, double scale);

// ---- cross-entropy over the head product, in row chunks (ops/loss/cross_entropy.cpp) ----
/// Rows of `logits_chunk`, cross_entropy's scratch for the logits of one chunk of tokens: [chunk_rows, V] in the
/// compute dtype. That is about 8 Mi logits (16 MiB in two bytes), at least 256 rows, or all tokens if they fit. A GPU
/// needs larger products to be busy: 128 Mi logits and 2,048 rows there.
int64_t cross_entropy_chunk_rows(int64_t num_tokens, int64_t vocabulary, bool on_gpu = false);
/// Loss of logits = x [T,D] w [V,D]^T against targets [T] int64 (-100: not supervised).
/// Writes loss_sum [1] float64, the sum of the losses (not the mean). With softcap > 0 the logits go through
/// softcap_forward(logits, softcap) first.
/// Numerics  the softmax runs in the statistics dtype on the rounded logits; the sum is over t in order
void cross_entropy_forward(const at::Tensor& loss_sum, const at::Tensor& x, const at::Tensor& w,
                           const at::Tensor& targets, const at::Tensor& logits_chunk, double softcap = 0);
/// The same, and gradients of scale * loss_sum: dx [T,D] and dw [V,D]. dx may be the tensor x.
/// A dw of two bytes is summed over chunks in `dw_sum` [V,D] float32, which may be undefined if one chunk holds all
/// rows. A float32 or float64 dw is summed in place, and dw_sum is not used.
void cross_entropy_forward_backward(const at::Tensor& loss_sum, const at::Tensor& dx, const Gradient& dw,
                                    const at::Tensor& x, const at::Tensor& w, const at::Tensor& targets, double scale,
                                    const at::Tensor& logits_chunk, const at::Tensor& dw_sum, double softcap = 0);

// ---- cross-entropy over a vocabulary divided by columns, in phases (ops/loss/cross_entropy_shard.cpp) ----
// For each chunk of rows the caller runs: softcap_forward if logits are capped; _max; all-reduce (max) of row_max;
// _sum; all-reduce (sum) of sum_exp and target_logit; _loss; _backward. With one rank the bits are those of
// cross_entropy_forward_backward. All three that read logits get the same `temperature`: the loss is that of
// logits / temperature. Temperatures other than 1 are built for processors only.
// Shapes    logits [rows, n]: columns first .. first + n - 1 of the head product, in the compute dtype. Columns at or
//           beyond `vocabulary`, the true size, are padding. row_max, sum_exp, target_logit [rows], statistics dtype.
//           targets [rows] int64: ids of the whole vocabulary, -100: not supervised
// Numerics  quotients, exponentials and sums in the statistics dtype
// Errors    ShapeError naming the tensor, or the first target that is neither -100 nor in the vocabulary

/// row_max = largest logit of each row; -inf if this rank holds padding only.
void cross_entropy_shard_max(const at::Tensor& row_max, const at::Tensor& logits, int64_t first, int64_t vocabulary,
                             double temperature = 1);
/// sum_exp = sum of exp(logit - row_max) over this rank's columns; target_logit = the target's logit, 0 if another rank
/// has it. Both are 0 in rows that are not supervised. row_max is already the maximum over ranks. If `logit_sum` [rows]
/// is defined, it gets the sum of this rank's logits (label smoothing), likewise.
void cross_entropy_shard_sum(const at::Tensor& sum_exp, const at::Tensor& target_logit, const at::Tensor& logits,
                             const at::Tensor& row_max, const at::Tensor& targets, int64_t first, int64_t vocabulary,
                             const at::Tensor& logit_sum = {}, double temperature = 1);
/// *Adds* log(sum_exp) + row_max - target_logit of the supervised rows, row by row, to loss_sum [1] float64. row_max,
/// sum_exp and target_logit are already reduced over ranks.
void cross_entropy_shard_loss(const at::Tensor& loss_sum, const at::Tensor& row_max, const at::Tensor& sum_exp,
                              const at::Tensor& target_logit, const at::Tensor& targets);
/// Overwrites logits with the gradient of scale * loss: scale (exp(logit - row_max) / sum_exp - onehot(target)).
/// Padding columns and rows that are not supervised get 0. With softcap > 0, `logits` are capped (by softcap_forward).
/// The gradient is that of the logits before the cap: it has the factor 1 - (logit / softcap)^2. That of logits before
/// the division has the factor 1 / temperature, beside the scale or the weights.
/// If `weights` [rows, 3] float64 is defined, a row with the weights (a, b, c) gets a exp(logit - row_max) / sum_exp -
/// b onehot(target) - c instead, without `scale`. Weights and logit_sum are built for processors only.
void cross_entropy_shard_backward(const at::Tensor& logits, const at::Tensor& row_max, const at::Tensor& sum_exp,
                                  const at::Tensor& targets, double scale, int64_t first, int64_t vocabulary,
                                  double softcap = 0, const at::Tensor& weights = {}, double temperature = 1);

}  // namespace trireme::ops
