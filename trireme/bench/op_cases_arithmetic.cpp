#include <ATen/ATen.h>
#include <fmt/format.h>

#include "trireme/bench/limits.h"
#include "trireme/bench/op_cases.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"

namespace trireme::bench {
namespace {

enum class Role { y, dx, dw };

// x [T,D], dy [T,2F] and the weight between them, stored [out,in] or [in,out].
template <auto Run, Role Result, bool InOut>
ArithmeticCase linear(Pool& p, const Widths& w, int64_t batch) {
  const int64_t T = batch * w.S, out = 2 * w.F;
  const auto x = p.values({T, w.D}, w.dtype), y = p.values({T, out}, w.dtype),
             weight = p.values(InOut ? std::vector{w.D, out} : std::vector{out, w.D}, w.dtype);
  ArithmeticCase c{.shape = fmt::format("{} x {} -> {}", T, w.D, out),
                   .flops = 2.0 * static_cast<double>(T * w.D * out)};
  // Inputs are not overwritten: the result has its own memory.
  c.calls.call = Result == Role::y    ? std::function<void()>([=] { Run(y, x, weight); })
                 : Result == Role::dx ? std::function<void()>([=] { Run(x, y, weight); })
                                      : std::function<void()>([=] { Run(weight, y, x); });
  return c;
}

ops::AttentionShape attention_shape(const Widths& w, int64_t batch) {
  return {.batch = batch, .sequence = w.S, .num_heads = w.H, .num_kv_heads = w.K, .head_dim = w.d};
}

std::string attention_text(const Widths& w, int64_t batch, const char* mask) {
  return fmt::format("{} x {}, {}/{} heads x {}, {}", batch, w.S, w.H, w.K, w.d, mask);
}

// Two products of S x S/2 x d forward (scores, values), five backward.
double causal_flops(const Widths& w, int64_t batch, int products) {
  return static_cast<double>(products * batch * w.H * w.d) * static_cast<double>(w.S) * static_cast<double>(w.S + 1);
}

template <bool Backward>
ArithmeticCase attention(Pool& p, const Widths& w, int64_t batch) {
  const int64_t T = batch * w.S;
  const auto shape = attention_shape(w, batch);
  const auto qkv = p.values({T, w.R()}, w.dtype), out = p.values({T, w.H * w.d}, w.dtype),
             d_out = p.values({T, w.H * w.d}, w.dtype), dqkv = p.values({T, w.R()}, w.dtype),
             lse = p.values({batch, w.H, w.S}, w.wide()),
             scratch = at::empty({ops::attention_workspace_bytes(shape, w.dtype)}, at::kByte);
  ops::attention_forward(out, lse, qkv, shape, scratch);
  ArithmeticCase c{.shape = attention_text(w, batch, "causal"), .flops = causal_flops(w, batch, Backward ? 5 : 2)};
  c.calls.call =
      Backward ? std::function<void()>([=] { ops::attention_backward(dqkv, d_out, out, lse, qkv, shape, scratch); })
               : std::function<void()>([=] { ops::attention_forward(out, lse, qkv, shape, scratch); });
  return c;
}

template <bool Backward>
ArithmeticCase attention_block(Pool& p, const Widths& w, int64_t batch) {
  const ops::AttentionBlockShape shape{
      .batch = batch, .queries = w.S, .keys = w.S, .num_heads = w.H, .num_kv_heads = w.K, .head_dim = w.d};
  const int64_t q_width = w.H * w.d, kv_width = 2 * w.K * w.d;
  const auto q = p.values({batch, w.S, q_width}, w.dtype), kv = p.values({batch, w.S, kv_width}, w.dtype),
             out = p.values({batch, w.S, q_width}, w.dtype), d_out = p.values({batch, w.S, q_width}, w.dtype),
             dq = p.values({batch, w.S, q_width}, w.wide()), dkv = p.values({batch, w.S, kv_width}, w.wide()),
             lse = p.positive({batch, w.H, w.S}, w.wide()),
             scratch = at::empty({ops::attention_block_workspace_bytes(shape, w.dtype)}, at::kByte);
  ops::attention_block_forward(out, lse, q, kv, shape, scratch);
  const double pairs = static_cast<double>(batch * w.H * w.S) * static_cast<double>(w.S * w.d);
  ArithmeticCase c{.shape = attention_text(w, batch, "all keys"), .flops = (Backward ? 10 : 4) * pairs};
  c.calls.call = Backward
                     ? std::function<void()>(
                           [=] { ops::attention_block_backward(dq, dkv, d_out, out, lse, q, kv, shape, scratch); })
                     : std::function<void()>([=] { ops::attention_block_forward(out, lse, q, kv, shape, scratch); });
  return c;
}

template <bool Backward>
ArithmeticCase cross_entropy(Pool& p, const Widths& w, int64_t batch) {
  const int64_t T = batch * w.S, chunk = ops::cross_entropy_chunk_rows(T, w.V);
  const auto x = p.values({T, w.D}, w.dtype), dx = p.values({T, w.D}, w.dtype), head = p.values({w.V, w.D}, w.dtype),
             d_head = p.values({w.V, w.D}, w.dtype), logits = p.values({chunk, w.V}, w.dtype), targets = p.ids(T, w.V),
             loss = p.values({1}, at::kDouble),
             sum = chunk < T && ops::is_narrow(w.dtype) ? p.values({w.V, w.D}, at::kFloat) : at::Tensor();
  const double product = 2.0 * static_cast<double>(T) * static_cast<double>(w.D * w.V);
  ArithmeticCase c{.shape = fmt::format("{} x {} -> {}", T, w.D, w.V), .flops = (Backward ? 3 : 1) * product};
  c.calls.call = Backward ? std::function<void()>([=] {
    ops::cross_entropy_forward_backward(loss, dx, d_head, x, head, targets, 1e-3, logits, sum);
  })
                          : std::function<void()>([=] { ops::cross_entropy_forward(loss, x, head, targets, logits); });
  return c;
}

}  // namespace

std::vector<ArithmeticRecipe> arithmetic_cases() {
  return {{"linear_forward", linear<ops::linear_forward, Role::y, false>},
          {"linear_backward_input", linear<ops::linear_backward_input, Role::dx, false>},
          {"linear_backward_weight", linear<ops::linear_backward_weight, Role::dw, false>},
          {"linear_in_out_forward", linear<ops::linear_in_out_forward, Role::y, true>},
          {"linear_in_out_backward_input", linear<ops::linear_in_out_backward_input, Role::dx, true>},
          {"linear_in_out_backward_weight", linear<ops::linear_in_out_backward_weight, Role::dw, true>},
          {"attention_forward", attention<false>},
          {"attention_backward", attention<true>},
          {"attention_block_forward", attention_block<false>},
          {"attention_block_backward", attention_block<true>},
          {"cross_entropy_forward", cross_entropy<false>},
          {"cross_entropy_forward_backward", cross_entropy<true>}};
}

}  // namespace trireme::bench
