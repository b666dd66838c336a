#include "tests/ops/attention_support.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <tuple>
#include <vector>

namespace trireme::ops {

void PrintTo(const AttentionShape& s, std::ostream* os) {
  *os << "b" << s.batch << "_s" << s.sequence << "_H" << s.num_heads << "_K" << s.num_kv_heads << "_d" << s.head_dim;
  if (s.window > 0) *os << "_w" << s.window;
  if (s.softcap > 0) *os << "_cap" << s.softcap;
  if (s.bidirectional) *os << "_both";
  if (s.dropout.p > 0) *os << "_drop" << std::lround(100 * s.dropout.p);
}

namespace test {
namespace {

at::ScalarType statistics(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

double scale_of(const AttentionShape& shape) {
  return shape.scale != 0 ? shape.scale : 1 / std::sqrt(static_cast<double>(shape.head_dim));
}

/// [B, 1, S, S]: the keys that a query does not see. The window is written as Hugging Face does: key > query - window.
at::Tensor hidden_keys(const AttentionShape& shape, const at::Tensor& starts) {
  const at::Tensor query = at::arange(shape.sequence, at::kLong).view({1, 1, -1, 1}), key = query.transpose(2, 3);
  at::Tensor hidden = shape.bidirectional ? at::zeros({1, 1, 1, 1}, at::kBool) : key > query;
  if (shape.window > 0) hidden = hidden | ~(key > query - shape.window);
  if (!starts.defined()) return hidden;
  const at::Tensor of_query = starts.view({shape.batch, 1, shape.sequence, 1});
  return shape.bidirectional ? of_query != of_query.transpose(2, 3) : hidden | (key < of_query);
}

at::Tensor filled(at::IntArrayRef sizes, at::ScalarType dtype, double value) {
  return at::full(sizes, value, at::TensorOptions().dtype(dtype));
}

}  // namespace

AttentionInputs::AttentionInputs(const AttentionShape& shape, at::ScalarType dtype, const at::Tensor& starts_)
    : starts(starts_) {
  at::manual_seed(7);
  const int64_t tokens = shape.batch * shape.sequence;
  qkv = at::randn({tokens, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim}, at::kDouble).to(dtype);
  d_out = at::randn({tokens, shape.num_heads * shape.head_dim}, at::kDouble).to(dtype);
}

at::Tensor some_keys(int64_t queries) { return at::arange(queries, at::kInt) * 1103515245 + 12345; }

at::Tensor dropout_factors(const AttentionDropout& dropout, int64_t batch, int64_t heads,
                           const std::vector<int64_t>& positions) {
  const auto hash = [](uint32_t h) {
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 15)) * 0x846ca68bu;
    return h ^ (h >> 16);
  };
  const at::Tensor keys = dropout.keys.reshape({batch, -1}).contiguous();
  const int64_t queries = keys.size(1), columns = static_cast<int64_t>(positions.size());
  at::Tensor factors = at::zeros({batch, heads, queries, columns}, at::kDouble);
  auto* factor = factors.data_ptr<double>();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < queries; ++i) {
        const auto key = static_cast<uint32_t>(keys.data_ptr<int32_t>()[b * queries + i]);
        const uint32_t row = hash(key + static_cast<uint32_t>(dropout.first_head + h) * 0x9E3779B9u);
        for (const int64_t position : positions)
          *factor++ = double(hash(row + static_cast<uint32_t>(position) * 0x9E3779B9u)) >= dropout.p * 0x1p32
                          ? 1 / (1 - dropout.p)
                          : 0;
      }
  return factors;
}

AttentionResults attention_reference(const AttentionShape& shape, const AttentionInputs& in) {
  const auto [b, s, H, K, d] =
      std::tuple(shape.batch, shape.sequence, shape.num_heads, shape.num_kv_heads, shape.head_dim);
  const at::Tensor x = in.qkv.to(at::kDouble).view({b, s, H + 2 * K, d}).transpose(1, 2);  // [b, H+2K, s, d]
  const at::Tensor q = x.slice(1, 0, H);
  const at::Tensor k = x.slice(1, H, H + K).repeat_interleave(H / K, 1);
  const at::Tensor v = x.slice(1, H + K).repeat_interleave(H / K, 1);
  const at::Tensor d_out = in.d_out.to(at::kDouble).view({b, s, H, d}).transpose(1, 2);
  at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * scale_of(shape), slope = at::ones_like(scores);
  if (shape.softcap > 0) {
    scores = at::tanh(scores / shape.softcap);
    slope = 1 - scores.square();
    scores = scores * shape.softcap;
  }
  scores = scores.masked_fill(hidden_keys(shape, in.starts), -INFINITY);
  const at::Tensor lse = at::logsumexp(scores, {3});
  const at::Tensor p = at::exp(scores - lse.unsqueeze(3));
  at::Tensor kept = at::ones_like(p);
  if (shape.dropout.p > 0) {
    std::vector<int64_t> positions;
    const AttentionDropout& drop = shape.dropout;
    for (int64_t j = 0; j < s; ++j)
      positions.push_back(j < drop.split ? drop.first_key + j : drop.later_key + j - drop.split);
    kept = dropout_factors(drop, b, H, positions);
  }
  const at::Tensor out = at::matmul(p * kept, v);
  const at::Tensor dp = at::matmul(d_out, v.transpose(2, 3)) * kept;
  const at::Tensor ds = p * (dp - (dp * p).sum(3, true)) * slope * scale_of(shape);
  const auto group_sum = [&, b = b, s = s, H = H, K = K, d = d](const at::Tensor& t) {
    return t.view({b, K, H / K, s, d}).sum(2);
  };
  const at::Tensor dq = at::matmul(ds, k);
  const at::Tensor dk = group_sum(at::matmul(ds.transpose(2, 3), q));
  const at::Tensor dv = group_sum(at::matmul((p * kept).transpose(2, 3), d_out));
  return {out.transpose(1, 2).reshape({b * s, H * d}), lse,
          at::cat({dq, dk, dv}, 1).transpose(1, 2).reshape({b * s, (H + 2 * K) * d})};
}

AttentionResults run_attention_with(const AttentionKernel& kernel, const AttentionShape& shape,
                                    const AttentionInputs& in, double garbage) {
  const at::ScalarType dtype = in.qkv.scalar_type();
  const int64_t bytes = attention_workspace_bytes(shape, dtype);
  const at::Tensor workspace = filled({bytes / 8 + 1}, at::kDouble, garbage);
  AttentionResults r{filled(in.d_out.sizes(), dtype, garbage),
                     filled({shape.batch, shape.num_heads, shape.sequence}, statistics(dtype), garbage),
                     filled(in.qkv.sizes(), dtype, garbage)};
  attention_forward(r.out, r.lse, in.qkv, shape, workspace, in.starts, &kernel);
  workspace.fill_(garbage);
  attention_backward(r.dqkv, in.d_out, r.out, r.lse, in.qkv, shape, workspace, in.starts, &kernel);
  return r;
}

double distance(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor difference = (got.to(at::kDouble) - want.to(at::kDouble)).abs().nan_to_num(INFINITY, INFINITY);
  return difference.max().item<double>() / std::max(want.abs().max().item<double>(), 1e-300);
}

void expect_close(const AttentionResults& got, const AttentionResults& want, double tolerance, double lse_tolerance) {
  EXPECT_LT(distance(got.out, want.out), tolerance);
  EXPECT_LT((got.lse.to(at::kDouble) - want.lse).abs().max().item<double>(), lse_tolerance);
  EXPECT_LT(distance(got.dqkv, want.dqkv), tolerance);
}

void expect_same_bits(const AttentionResults& got, const AttentionResults& want) {
  EXPECT_TRUE(at::equal(got.out, want.out));
  EXPECT_TRUE(at::equal(got.lse, want.lse));
  EXPECT_TRUE(at::equal(got.dqkv, want.dqkv));
}

}  // namespace test
}  // namespace trireme::ops
