// One decoded row against the last row of full attention over the same tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/ops/attention.h"

namespace trireme::ops {
namespace {

/// Full attention's row `length - 1` of each batch row, where the cache holds the tokens of qkv.
void expect_last_row(at::ScalarType dtype, const AttentionShape& shape, double tolerance) {
  at::manual_seed(3);
  const auto [B, S, H, K, d] =
      std::tuple(shape.batch, shape.sequence, shape.num_heads, shape.num_kv_heads, shape.head_dim);
  const int64_t capacity = S + 5;
  const at::Tensor qkv = at::randn({B, S, (H + 2 * K) * d}).to(dtype);
  const at::Tensor out = at::empty({B * S, H * d}, qkv.options());
  const at::Tensor lse = at::empty({B, H, S}, qkv.options().dtype(dtype == at::kDouble ? at::kDouble : at::kFloat));
  const at::Tensor workspace = at::empty({attention_workspace_bytes(shape, dtype)}, at::kByte);
  attention_forward(out, lse, qkv.view({B * S, -1}), shape, workspace);

  // What lies beyond the valid tokens, or before the window, must not be read: it is NaN.
  const at::Tensor k = at::full({B, capacity, K * d}, NAN, qkv.options()), v = k.clone();
  at::Tensor lengths = at::empty({B}, at::kLong), q = at::empty({B, H * d}, qkv.options());
  for (int64_t b = 0; b < B; ++b) {
    const int64_t length = std::max<int64_t>(1, S - 3 * b);
    lengths[b] = length;
    q[b] = qkv[b][length - 1].slice(0, 0, H * d);
    k[b].slice(0, 0, length) = qkv[b].slice(0, 0, length).slice(1, H * d, (H + K) * d);
    v[b].slice(0, 0, length) = qkv[b].slice(0, 0, length).slice(1, (H + K) * d);
  }
  for (int64_t b = 0; shape.window > 0 && b < B; ++b)
    for (const at::Tensor& cache : {k, v})
      cache[b].slice(0, 0, std::max<int64_t>(0, lengths[b].item<int64_t>() - shape.window)).fill_(NAN);
  const at::Tensor got = at::full_like(q, NAN);
  attention_decode(got, q, k, v, lengths, shape);
  for (int64_t b = 0; b < B; ++b) {
    const at::Tensor want = out.view({B, S, H * d})[b][lengths[b].item<int64_t>() - 1];
    EXPECT_LT((got[b] - want).abs().max().item<double>(), tolerance) << "batch row " << b;
  }
}

TEST(AttentionDecode, EqualsTheLastRowOfFullAttention) {
  for (const AttentionShape& shape :
       {AttentionShape{1, 1, 1, 1, 64}, AttentionShape{3, 33, 6, 2, 20}, AttentionShape{3, 33, 6, 2, 20, 0, 5},
        AttentionShape{2, 33, 2, 1, 16, 0, 40}, AttentionShape{1, 100, 2, 2, 300, 0.02}}) {
    expect_last_row(at::kDouble, shape, 1e-13);
    expect_last_row(at::kFloat, shape, 3e-6);
    expect_last_row(at::kBFloat16, shape, 2e-2);
  }
}

TEST(AttentionDecode, RefusesALengthTheCacheCannotHold) {
  const AttentionShape shape{1, 1, 2, 1, 8};
  const at::Tensor q = at::zeros({1, 16}), cache = at::zeros({1, 4, 8}), out = at::empty_like(q);
  EXPECT_NO_THROW(attention_decode(out, q, cache, cache, at::full({1}, 4, at::kLong), shape));
  try {
    attention_decode(out, q, cache, cache, at::full({1}, 5, at::kLong), shape);
    FAIL() << "accepted";
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("lengths[0] is 5, the cache holds 1 to 4 tokens"));
  }
}

}  // namespace
}  // namespace trireme::ops
