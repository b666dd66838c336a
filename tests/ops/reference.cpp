#include "tests/ops/reference.h"

#include <ATen/ATen.h>

#include <cmath>

namespace trireme::ops::reference {

at::Tensor linear(const at::Tensor& x, const at::Tensor& w) { return at::matmul(x, w.t()); }
at::Tensor linear_in_out(const at::Tensor& x, const at::Tensor& w) { return at::matmul(x, w); }
at::Tensor bias(const at::Tensor& y, const at::Tensor& bias) { return y + bias; }

at::Tensor rms_norm_rstd(const at::Tensor& x, double eps) { return at::rsqrt(x.square().mean(-1) + eps); }

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& w, double eps, double weight_offset) {
  return x * rms_norm_rstd(x, eps).unsqueeze(-1) * (w + weight_offset);
}

at::Tensor head_norm(const at::Tensor& qkv, const at::Tensor& w_q, const at::Tensor& w_k, int64_t num_heads,
                     int64_t num_kv_heads, double eps, double weight_offset) {
  const auto heads = qkv.view({qkv.size(0), num_heads + 2 * num_kv_heads, w_q.size(0)});
  const auto parts = heads.split_with_sizes({num_heads, num_kv_heads, num_kv_heads}, 1);
  const auto norm = [&](const at::Tensor& x, const at::Tensor& w) {
    return x * rms_norm_rstd(x, eps).unsqueeze(-1) * (w + weight_offset);
  };
  return at::cat({norm(parts[0], w_q), norm(parts[1], w_k), parts[2]}, 1).reshape(qkv.sizes());
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b, double eps) {
  return at::layer_norm(x, {x.size(-1)}, w, b, eps);
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

at::Tensor geglu(const at::Tensor& gate_up) {
  const auto halves = gate_up.chunk(2, -1);
  return reference::gelu(halves[0]) * halves[1];
}

at::Tensor softcap(const at::Tensor& x, double cap) { return cap == 0 ? x : at::tanh(x / cap) * cap; }

at::Tensor gelu(const at::Tensor& x) { return at::gelu(x, "tanh"); }

at::Tensor accumulate(const at::Tensor& sum, const at::Tensor& x) {
  return (sum.to(at::kDouble) + x.to(at::kDouble)).to(sum.scalar_type());
}

std::pair<at::Tensor, at::Tensor> rotary_table(const at::Tensor& inverse_frequencies, double attention_factor,
                                               int64_t sequence, int64_t first_position) {
  const auto position = at::arange(first_position, first_position + sequence, at::kFloat);
  const auto angle = at::outer(position, inverse_frequencies.to(at::kFloat)).to(at::kDouble);
  return {angle.cos() * attention_factor, angle.sin() * attention_factor};
}

at::Tensor rotary(const at::Tensor& qkv, const at::Tensor& cosine, const at::Tensor& sine, int64_t num_heads,
                  int64_t num_kv_heads) {
  const int64_t sequence = cosine.size(0), head_dim = 2 * cosine.size(1);
  const int64_t all_heads = num_heads + 2 * num_kv_heads;
  const auto heads = qkv.view({-1, sequence, all_heads, head_dim});  // [B, S, H + 2 K, d]
  const auto rotated = heads.narrow(2, 0, num_heads + num_kv_heads);
  const auto halves = rotated.chunk(2, -1);
  // Hugging Face: x * cos + rotate_half(x) * sin with the tables repeated over both halves.
  const auto c = at::cat({cosine, cosine}, -1).unsqueeze(1), s = at::cat({sine, sine}, -1).unsqueeze(1);
  const auto rotate_half = at::cat({-halves[1], halves[0]}, -1);
  const auto values = heads.narrow(2, num_heads + num_kv_heads, num_kv_heads);
  return at::cat({rotated * c + rotate_half * s, values}, 2).reshape(qkv.sizes());
}

std::pair<at::Tensor, at::Tensor> attention(const at::Tensor& q, const at::Tensor& kv, int64_t num_heads,
                                            int64_t num_kv_heads, double scale, const at::Tensor& hidden,
                                            double softcap) {
  const int64_t head_dim = q.size(2) / num_heads, group = num_heads / num_kv_heads;
  const auto heads = [&](const at::Tensor& x, int64_t count) {  // [B, rows, count * d] -> [B, H, rows, d]
    return x.reshape({x.size(0), x.size(1), count, head_dim}).transpose(1, 2).repeat_interleave(num_heads / count, 1);
  };
  const auto halves = kv.chunk(2, -1);
  auto scores = at::matmul(heads(q, num_heads), heads(halves[0], num_heads / group).transpose(2, 3)) * scale;
  if (softcap != 0) scores = at::tanh(scores / softcap) * softcap;
  if (hidden.defined()) scores = scores.masked_fill(hidden, -INFINITY);
  const auto lse = at::logsumexp(scores, {3});
  const auto out = at::matmul(at::exp(scores - lse.unsqueeze(3)), heads(halves[1], num_heads / group));
  return {out.transpose(1, 2).reshape(q.sizes()), lse};
}

std::pair<at::Tensor, at::Tensor> merge_attention(const std::pair<at::Tensor, at::Tensor>& a,
                                                  const std::pair<at::Tensor, at::Tensor>& b) {
  const auto lse = at::logaddexp(a.second, b.second);  // [B, H, Q]
  const auto part = [&](const std::pair<at::Tensor, at::Tensor>& x) {
    const auto weight = at::exp(x.second - lse).transpose(1, 2).unsqueeze(3);  // [B, Q, H, 1]
    return x.first.reshape({lse.size(0), lse.size(2), lse.size(1), -1}) * weight;
  };
  return {(part(a) + part(b)).reshape(a.first.sizes()), lse};
}

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& table, const at::Tensor& positions, int64_t sequence,
                     const at::Tensor& position_ids, double scale) {
  const auto held = ids.ge(0).unsqueeze(1);
  auto y = at::where(held, at::embedding(table, ids.clamp_min(0)), at::zeros({}, table.options())) * scale;
  if (!positions.defined()) return y;
  const auto place = at::arange(ids.size(0), at::kLong).remainder(sequence);
  return y + at::embedding(positions, position_ids.defined() ? position_ids : place);
}

at::Tensor cross_entropy(const at::Tensor& x, const at::Tensor& w, const at::Tensor& targets, double softcap) {
  return cross_entropy_of_logits(at::matmul(x, w.t()), targets, w.size(0), softcap);
}

at::Tensor cross_entropy_of_logits(const at::Tensor& logits, const at::Tensor& targets, int64_t vocabulary,
                                   double softcap_at) {
  return at::cross_entropy_loss(softcap(logits.slice(1, 0, vocabulary), softcap_at), targets, {}, at::Reduction::Sum,
                                -100);
}

}  // namespace trireme::ops::reference
