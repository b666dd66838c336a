#include <ATen/ATen.h>

#include <array>

#include "trireme/bench/op_cases.h"
#include "trireme/model/rotary_frequencies.h"
#include "trireme/ops/ops.h"
#include "trireme/optim/optimizer.h"

namespace trireme::bench {
namespace {

double mlp(const Widths& w) { return static_cast<double>(w.F) * w.E(); }
double table_row(const Widths& w) { return static_cast<double>(w.d) * w.W(); }  // cosines and sines
double rotated(const Widths& w) { return 2 * static_cast<double>((w.H + w.K) * w.d) * w.E(); }

// Results that overwrite inputs would sink to 0 or grow from call to call.
std::function<void()> restore(const at::Tensor& a, const at::Tensor& b = {}) {
  const at::Tensor a_before = a.clone(), b_before = b.defined() ? b.clone() : b;
  return [=] {
    a.copy_(a_before);
    if (b.defined()) b.copy_(b_before);
  };
}

std::vector<double> frequencies(int64_t head_dim) { return model::rotary_frequencies(10000.0, head_dim, {}); }

// A step of the optimizer over T * D elements: kWide words of master, state and gradient, and the compute copy.
template <int kWide>
double updated(const Widths& w) {
  return static_cast<double>(w.D) * (kWide * w.W() + w.E());
}

template <optim::Rule kRule>
Calls update(Pool& p, const Widths& w, int64_t T) {
  const int64_t n = T * w.D;
  const optim::OptimizerOptions options{.rule = kRule, .lr = 1e-4, .momentum = 0.9, .step = 10};
  const auto master = p.values({n}, w.wide()), gradient = p.values({n}, w.wide()), compute = p.values({n}, w.dtype);
  std::vector<at::Tensor> state;
  while (state.size() < optim::state_names(options).size()) state.push_back(p.positive({n}, w.wide()));
  return Calls{[=] {
    const std::array segments = {optim::DecaySegment{0, n, true}};
    optim::optimizer_update(master, state, gradient, compute, segments, options);
  }};
}

// Whole sequences, or part of one.
int64_t sequence_of(const Widths& w, int64_t rows) { return rows % w.S == 0 ? w.S : rows; }

template <auto Rotate>
Calls rotary(Pool& p, const Widths& w, int64_t T) {
  const int64_t S = sequence_of(w, T);
  const auto qkv = p.values({T, w.R()}, w.dtype), c = p.values({S, w.d / 2}, w.wide()),
             s = p.values({S, w.d / 2}, w.wide());
  ops::rotary_table(c, s, frequencies(w.d), 1.0, 0);
  return {[=, H = w.H, K = w.K] { Rotate(qkv, c, s, H, K, at::Tensor()); }};
}

template <auto Forward>
Calls gated_forward(Pool& p, const Widths& w, int64_t T) {
  const auto gate_up = p.values({T, 2 * w.F}, w.dtype), y = p.values({T, w.F}, w.dtype);
  return {[=] { Forward(y, gate_up); }};
}
template <auto Backward>
Calls gated_backward(Pool& p, const Widths& w, int64_t T) {
  const auto gate_up = p.values({T, 2 * w.F}, w.dtype), dy = p.values({T, w.F}, w.dtype);
  return {[=] { Backward(gate_up, dy); }, restore(gate_up, dy)};
}

constexpr MemoryCase kElementwiseCases[] = {
    {"bias_forward", [](const Widths& w) { return 2 * mlp(w); }, mlp,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto y = p.values({T, w.F}, w.dtype), bias = p.values({w.F}, w.dtype);
       return Calls{[=] { ops::bias_forward(y, bias); }};
     },
     Access::kInPlace},
    {"bias_backward", mlp, mlp,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto dy = p.values({T, w.F}, w.dtype), dbias = p.values({w.F}, w.dtype);
       return Calls{[=] { ops::bias_backward(dbias, dy); }};
     },
     Access::kRead},
    {"add_forward", [](const Widths& w) { return 3 * static_cast<double>(w.D) * w.E(); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto a = p.values({T, w.D}, w.dtype), b = p.values({T, w.D}, w.dtype), y = p.values({T, w.D}, w.dtype);
       return Calls{[=] { ops::add_forward(y, a, b); }};
     }},
    {"accumulate", [](const Widths& w) { return static_cast<double>(w.D) * (2 * w.W() + w.E()); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto sum = p.values({T, w.D}, w.wide()), x = p.values({T, w.D}, w.dtype);
       return Calls{[=] { ops::accumulate(sum, x); }};
     },
     Access::kInPlace},
    {"swiglu_forward", [](const Widths& w) { return 3 * mlp(w); }, nothing, gated_forward<ops::swiglu_forward>},
    {"swiglu_backward", [](const Widths& w) { return 6 * mlp(w); }, nothing, gated_backward<ops::swiglu_backward>,
     Access::kInPlace},
    {"geglu_forward", [](const Widths& w) { return 3 * mlp(w); }, nothing, gated_forward<ops::geglu_forward>},
    {"geglu_backward", [](const Widths& w) { return 6 * mlp(w); }, nothing, gated_backward<ops::geglu_backward>,
     Access::kInPlace},
    {"gelu_forward", [](const Widths& w) { return 2 * mlp(w); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.F}, w.dtype), y = p.values({T, w.F}, w.dtype);
       return Calls{[=] { ops::gelu_forward(y, x); }};
     }},
    {"gelu_backward", [](const Widths& w) { return 4 * mlp(w); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.F}, w.dtype), dy = p.values({T, w.F}, w.dtype);
       return Calls{[=] { ops::gelu_backward(x, dy); }, restore(x, dy)};
     },
     Access::kInPlace},
    {"rotary_table", table_row, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto c = p.values({T, w.d / 2}, w.wide()), s = p.values({T, w.d / 2}, w.wide());
       return Calls{[=, f = frequencies(w.d)] { ops::rotary_table(c, s, f, 1.0, 0); }};
     }},
    {"rotary_forward", rotated, nothing, rotary<ops::rotary_forward>, Access::kInPlace, table_row},
    {"rotary_backward", rotated, nothing, rotary<ops::rotary_backward>, Access::kInPlace, table_row},
    {"optimizer_update, AdamW", updated<7>, nothing, update<optim::Rule::adamw>, Access::kInPlace},
    {"optimizer_update, Adam", updated<7>, nothing, update<optim::Rule::adam>, Access::kInPlace},
    {"optimizer_update, SGD", updated<5>, nothing, update<optim::Rule::sgd>, Access::kInPlace},
    {"optimizer_update, Lion", updated<5>, nothing, update<optim::Rule::lion>, Access::kInPlace},
    {"squared_norm_partials", [](const Widths& w) { return static_cast<double>(w.D) * w.W(); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const int64_t n = T * w.D;
       const auto gradient = p.values({n}, w.wide());
       const auto partials = p.values({(n + optim::kNormBlock - 1) / optim::kNormBlock}, at::kDouble);
       return Calls{[=] { optim::squared_norm_partials(partials, gradient); }};
     },
     Access::kRead},
};

}  // namespace

std::span<const MemoryCase> elementwise_cases() { return kElementwiseCases; }

}  // namespace trireme::bench
