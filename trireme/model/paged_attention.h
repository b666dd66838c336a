// A block's attention in generation: its new rows go into the cache, and see their sequences there.
#pragma once

#include "trireme/model/context_attention.h"
#include "trireme/ops/attention/paged.h"

namespace trireme::model {

/// attended [R, H d] from the rotated rows qkv [R, (H + 2 K) d] and the cache in `t`.
inline void attend_to_pages(const UnitTensors& t, const at::Tensor& attended, const at::Tensor& qkv,
                            const BlockWidths& widths, const AttentionTraits& traits) {
  const int64_t q = widths.q_width(), kv = widths.kv_width();
  const auto by_head = [&](const at::Tensor& pages) {
    return pages.view({-1, widths.kv_heads, ops::kAttentionPage, widths.head_dim});
  };
  const at::Tensor k_pages = by_head(t.k_pages), v_pages = by_head(t.v_pages);
  ops::cache_write(k_pages, v_pages, qkv.narrow(1, q, kv), qkv.narrow(1, q + kv, kv), t.new_tokens->places);
  ops::attention_paged(attended, qkv.narrow(1, 0, q), k_pages, v_pages, t.new_tokens->sequences,
                       attention_shape(1, 1, widths, traits));
}

}  // namespace trireme::model
