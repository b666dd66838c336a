// New tokens against a cache: the last rows of full attention over the same tokens.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/ops/attention/attention.h"

namespace trireme::ops {
namespace {

struct Cache {
  at::Tensor k, v, lengths, q;  ///< q [B*N, R]: packed rows, of which queries are the first H*d
};

/// A cache of the tokens of qkv [B, S, R], batch row b holding 3 b fewer, and the last `count` of them as queries. What
/// lies beyond the valid tokens must not be read: it is NaN.
Cache cache_of(const at::Tensor& qkv, const AttentionShape& shape, int64_t count) {
  const auto [B, S, H, K, d] =
      std::tuple(shape.batch, shape.sequence, shape.num_heads, shape.num_kv_heads, shape.head_dim);
  Cache cache{at::full({B, S + 5, K * d}, NAN, qkv.options()), {}, at::empty({B}, at::kLong), {}};
  cache.v = cache.k.clone(), cache.q = at::empty({B, count, qkv.size(2)}, qkv.options());
  for (int64_t b = 0; b < B; ++b) {
    const int64_t length = std::max<int64_t>(count, S - 3 * b);
    cache.lengths[b] = length;
    cache.q[b] = qkv[b].slice(0, length - count, length);
    cache.k[b].slice(0, 0, length) = qkv[b].slice(0, 0, length).slice(1, H * d, (H + K) * d);
    cache.v[b].slice(0, 0, length) = qkv[b].slice(0, 0, length).slice(1, (H + K) * d);
  }
  cache.q = cache.q.view({B * count, -1});
  return cache;
}

/// The last `count` rows of every batch row equal attention_forward's of the same tokens, in every kernel.
void expect_last_rows(at::ScalarType dtype, AttentionShape shape, int64_t count, double tolerance) {
  at::manual_seed(3);
  const int64_t B = shape.batch, S = shape.sequence, H = shape.num_heads, width = H * shape.head_dim;
  const at::Tensor qkv = at::randn({B, S, width + 2 * shape.num_kv_heads * shape.head_dim}).to(dtype);
  const at::Tensor out = at::empty({B * S, width}, qkv.options());
  const at::Tensor lse = at::empty({B, H, S}, qkv.options().dtype(dtype == at::kDouble ? at::kDouble : at::kFloat));
  const at::Tensor workspace = at::empty({attention_workspace_bytes(shape, dtype)}, at::kByte);
  attention_forward(out, lse, qkv.view({B * S, -1}), shape, workspace);

  const Cache cache = cache_of(qkv, shape, count);
  if (count == 1 && shape.window > 0)  // nor is what the window hides of the one query
    for (int64_t b = 0; b < B; ++b)
      for (const at::Tensor& x : {cache.k, cache.v})
        x[b].slice(0, 0, std::max<int64_t>(0, cache.lengths[b].item<int64_t>() - shape.window)).fill_(NAN);
  shape.sequence = count;
  for (const AttentionKernel* kernel : attention_kernels()) {
    const at::Tensor got = at::full({B * count, width}, NAN, qkv.options());
    attention_decode(got, cache.q.slice(1, 0, width), cache.k, cache.v, cache.lengths, shape, kernel);
    for (int64_t b = 0; b < B; ++b) {
      const int64_t length = cache.lengths[b].item<int64_t>();
      const at::Tensor want = out.view({B, S, width})[b].slice(0, length - count, length);
      EXPECT_LT((got.view({B, count, width})[b] - want).abs().nan_to_num(INFINITY).max().item<double>(), tolerance)
          << kernel->name << ", batch row " << b << ", " << count << " new of " << length;
    }
  }
}

const AttentionShape kShapes[] = {{1, 33, 1, 1, 64},
                                  {3, 39, 6, 2, 20},
                                  {3, 39, 6, 2, 20, 0, 5},
                                  {2, 33, 2, 1, 16, 0, 40},
                                  {1, 100, 2, 2, 300, 0.02},
                                  {2, 261, 4, 1, 256, 0, 0, 2},
                                  {2, 200, 8, 2, 13, 1, 70, 4},
                                  {1, 333, 4, 4, 128, 0, 130}};

TEST(AttentionDecode, OneTokenOrManyEqualTheLastRowsOfFullAttention) {
  for (const AttentionShape& shape : kShapes)
    for (const int64_t count : {1, 3, 30}) {
      expect_last_rows(at::kDouble, shape, count, 1e-13);
      expect_last_rows(at::kFloat, shape, count, 6e-6);
      expect_last_rows(at::kBFloat16, shape, count, 2e-2);
    }
}

TEST(AttentionDecode, AWholePromptAndLongChunksEqualFullAttention) {
  const AttentionShape shape{1, 391, 4, 2, 64, 0, 150, 30};
  for (const int64_t count : {64, 129, 262, 391}) {
    expect_last_rows(at::kFloat, shape, count, 6e-6);
    expect_last_rows(at::kBFloat16, shape, count, 2e-2);
  }
}

TEST(AttentionDecode, BitsDoNotDependOnThreads) {
  const int threads = at::get_num_threads();
  for (const int64_t count : {1, 40}) {
    AttentionShape shape{2, 300, 4, 2, 32};
    const Cache cache = cache_of(at::randn({2, 300, 8 * 32}).to(at::kBFloat16), shape, count);
    shape.sequence = count;
    const at::Tensor one = at::empty({2 * count, 4 * 32}, at::kBFloat16), other = at::empty_like(one);
    at::set_num_threads(1);
    attention_decode(one, cache.q.slice(1, 0, 128), cache.k, cache.v, cache.lengths, shape);
    at::set_num_threads(3);
    attention_decode(other, cache.q.slice(1, 0, 128), cache.k, cache.v, cache.lengths, shape);
    EXPECT_TRUE(at::equal(one, other)) << count << " tokens";
  }
  at::set_num_threads(threads);
}

TEST(AttentionDecode, RefusesALengthTheCacheCannotHold) {
  const AttentionShape shape{1, 1, 2, 1, 8};
  const at::Tensor q = at::zeros({1, 16}), cache = at::zeros({1, 4, 8}), out = at::empty_like(q);
  EXPECT_NO_THROW(attention_decode(out, q, cache, cache, at::full({1}, 4, at::kLong), shape));
  try {
    attention_decode(out, q, cache, cache, at::full({1}, 5, at::kLong), shape);
    FAIL() << "accepted";
  } catch (const ShapeError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr("lengths[0] is 5, with 1 new it must be 1 to 4, the tokens that the cache holds"));
  }
}

}  // namespace
}  // namespace trireme::ops
