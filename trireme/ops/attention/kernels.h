// The interface between attention's argument checks (attention.cpp) and its kernels: plain pointers, no ATen.
//
// Kernels are compiled with flags for their instruction set. If such a file included a library header, that library's
// inline functions would be compiled with AVX-512 too, and the linker could use that copy in the whole program. So this
// header includes only <cstdint>.
#pragma once

#include <cstdint>

namespace trireme::ops {

enum class AttentionDtype : int { float64, float32, bfloat16, float16 };

/// Elements from one batch row, or one row of a sequence, to the next.
struct AttentionStride {
  int64_t batch, row;
};

/// Which weights are dropped (ops::AttentionDropout). Key j has the position first_key + j, and from key `split` on
/// later_key + j - split.
struct AttentionDrops {
  double p;  ///< 0: none
  const uint32_t* keys;  ///< of each query
  int64_t batch;  ///< elements of `keys` from one batch row to the next
  int64_t first_head, first_key, split, later_key;
};

/// One forward or backward call on whole tensors. Pointers are to the first head of the first row.
struct AttentionCall {
  int64_t batch, queries, keys, num_heads, num_kv_heads, head_dim;
  double scale;
  double softcap;  ///< not 0: scores are softcap * tanh(score / softcap), before any mask
  /// True: query i sees the keys 0 .. first_query + i, and keys = first_query + queries; or, with whole_documents, all
  /// keys of its document. Results are written; gradients have the compute dtype. False: every query sees all keys.
  /// `out` and `lse` are merged with their old values, and gradients are added to dq, dk, dv (statistics dtype).
  bool causal;
  const void *q, *k, *v;
  void *out, *lse;  ///< only read by the backward
  const void* d_out;  ///< backward only
  void *dq, *dk, *dv;  ///< backward only
  AttentionStride q_stride, kv_stride, out_stride, d_out_stride, dq_stride, dkv_stride;
  int64_t lse_batch, lse_head;  ///< strides of lse [B, H, Q], whose rows are contiguous
  /// Causal calls only. Query i of batch row b sees no key before first_query + i - window + 1 (window 0: no limit),
  /// and none before starts[b * queries + i] (null: no limit). `starts` never falls along a row.
  int64_t window;
  int64_t first_query;  ///< keys before the first query's own; may be above 0 only in the forward without `starts`
  const int64_t* starts;
  bool whole_documents;  ///< causal calls without window and first_query: a query sees later keys too; not on a GPU
  AttentionDrops drops;  ///< forward and backward on processors
  void* workspace = nullptr;  ///< on a GPU, of workspace_bytes; it may be too small for some kernels
  int64_t workspace_bytes = 0;
};

/// One part of a job. A job is one kv head of one batch row: job = batch index * num_kv_heads + kv head.
struct AttentionTask {
  int64_t job, part = 0, parts = 1;
};

/// Computes a task. Tasks write disjoint memory: any threads may run them in any order. The bits do not depend on the
/// number of parts of a job. `scratch` has attention_scratch_bytes, aligned to 64.
using AttentionPass = void (*)(const AttentionCall& call, const AttentionTask& task, void* scratch);

/// Tokens of a page of the cache. Blocks of keys lie inside pages.
constexpr int64_t kAttentionPage = 128;

/// New tokens of one sequence: neighbouring rows of a call.
struct PagedSequence {
  int64_t first_row, tokens;
  int64_t length;  ///< tokens in the cache, with the new ones, which are its last
  const int32_t* pages;  ///< the page of tokens 0 .. kAttentionPage - 1, of the next ones, and so on
};

/// Keys and values of new tokens, for their places in the cache. A page of a head has its keys, or values, in blocks as
/// the kernel's products read them (pages-inl.h).
struct CacheWrite {
  int64_t rows, heads, head_dim;
  const void *k, *v;
  int64_t k_stride, v_stride;  ///< elements from one row to the next
  void *k_pages, *v_pages;
  const int64_t* places;  ///< of each row: page * kAttentionPage + token of the page
};

/// Writes the rows [first, last). Any threads may write different rows.
using CacheWritePass = void (*)(const CacheWrite& call, int64_t first, int64_t last);

/// Attention of new tokens to their sequences' pages [page, kv head], which the same kernel has written.
struct PagedCall {
  int64_t num_heads, num_kv_heads, head_dim;
  double scale, softcap;
  int64_t window;
  const void* q;
  void* out;
  int64_t q_stride, out_stride;  ///< elements from one row to the next
  const void *k, *v;
};

/// One kv head of some new tokens of a sequence.
struct PagedTask {
  const PagedSequence* sequence;
  int64_t kv_head, first_token, tokens;
};

/// Computes a task. Tasks write disjoint memory. `next`: the thread's next task, or null: its first keys and values are
/// fetched beside the last ones. `scratch` has paged_scratch_bytes, aligned to 64.
using PagedPass = void (*)(const PagedCall& call, const PagedTask& task, const PagedTask* next, void* scratch);

/// Most rows of a task (tokens x query heads of a kv head), if one token does not have more.
constexpr int64_t kPagedRows = 256;

struct AttentionKernel {
  const char* name;
  AttentionPass forward[4];  ///< indexed by AttentionDtype
  AttentionPass backward[4];
  CacheWritePass write[4];
  PagedPass paged[4];
};

extern const AttentionKernel kAttentionPortable;  ///< any processor; float64 always runs here
extern const AttentionKernel kAttentionAvx2;  ///< AVX2 + FMA
extern const AttentionKernel kAttentionAvx512;  ///< AVX512 F, BW, VL and DQ
extern const AttentionKernel kAttentionAvx512Bf16;  ///< the same and BF16

constexpr int64_t kAttentionQueryBlock = 64;  ///< query rows of one score tile
constexpr int64_t kAttentionKeyBlock = 128;  ///< most keys of one score tile; half as many if units are not pairs

/// Bytes of scratch of one task, forward or backward. They are the same for every kernel, so that a memory plan of one
/// machine is valid on another. The backward has K^T, V^T, K and the sums dK, dV over all keys there, and a few tiles.
constexpr int64_t attention_scratch_bytes(int64_t num_keys, int64_t head_dim, AttentionDtype dtype) {
  const int64_t element = dtype == AttentionDtype::float64 ? 8 : 4;
  const int64_t keys = (num_keys + kAttentionKeyBlock - 1) / kAttentionKeyBlock * kAttentionKeyBlock;
  const int64_t dim = (head_dim + 15) / 16 * 16;
  return element * (5 * (keys + kAttentionQueryBlock) * dim + 5 * kAttentionQueryBlock * kAttentionKeyBlock +
                    20 * kAttentionQueryBlock) +
         16 * 64;
}

/// Bytes of scratch of a task of so many rows, for every kernel: one block of keys and values, where they are not read
/// in their pages, queries, sums and scores.
constexpr int64_t paged_scratch_bytes(int64_t rows, int64_t head_dim) {
  const int64_t dim = (head_dim + 15) / 16 * 16, padded = rows + 4;
  return 8 * (2 * kAttentionKeyBlock * dim + 2 * padded * dim + 2 * kAttentionQueryBlock * kAttentionKeyBlock +
              20 * padded) +
         12 * 64;
}

namespace cuda {

/// Runs our own kernels on a GPU, which support every call (kernels_cuda.cu). attention_cuda.cpp decides when
/// LibTorch's run instead.
void own_attention(const AttentionCall& call, AttentionDtype dtype, bool backward);

}  // namespace cuda
}  // namespace trireme::ops
