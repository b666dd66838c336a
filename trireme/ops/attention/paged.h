// Attention over a cache in pages, for generation: sequences of any lengths share a call, each with any number of new
// tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "trireme/ops/attention/kernels.h"
#include "trireme/ops/ops.h"

namespace trireme::ops {

/// Writes keys and values of new tokens to their places in the cache. The tokens of a sequence are neighbouring rows.
///
/// Shapes    k, v [R, K*d], whose rows may be slices of longer rows; k_pages, v_pages
///           [pages, K, kAttentionPage, d]: a head's part of a page is in the kernel's order (pages-inl.h), so only
///           whole pages can be copied; places [R] int64: page * kAttentionPage + token of the page
/// Errors    ShapeError naming the tensor or the place
void cache_write(const at::Tensor& k_pages, const at::Tensor& v_pages, const at::Tensor& k, const at::Tensor& v,
                 const at::Tensor& places, const AttentionKernel* kernel = nullptr);

/// Attention of new tokens to their sequences. The cache already holds the new tokens. The i-th of N new tokens of a
/// sequence of L tokens has position L - N + i, and sees the keys up to that position, except those that shape.window
/// hides. shape.batch and shape.sequence mean nothing here.
///
/// Shapes    out [R, H*d]; q [R, H*d], whose rows may be slices of longer rows; k_pages, v_pages as cache_write has
///           written them with the same kernel.
///           Rows that belong to no sequence are not written
/// Cost      4 H N L d operations a sequence, where L is the length or the window; reads its pages once per kv head and
///           kPagedRows rows, and allocates nothing after the first calls. Sequences, kv heads and, of many new tokens,
///           rows are divided among threads
/// Numerics  the bits of attention_forward on the whole sequence: they depend neither on the other sequences, nor on
///           how many tokens come at a time, nor on threads
/// Errors    ShapeError naming the tensor or the sequence, before anything is written
void attention_paged(const at::Tensor& out, const at::Tensor& q, const at::Tensor& k_pages, const at::Tensor& v_pages,
                     const std::vector<PagedSequence>& sequences, const AttentionShape& shape,
                     const AttentionKernel* kernel = nullptr);

}  // namespace trireme::ops
