// The operations of `trireme bench ops` that move memory: norms, element-wise operations, the optimizer, and operations
// with a row for each word of the vocabulary.
#include <ATen/ATen.h>

#include <array>
#include <memory>

#include "trireme/bench/op_cases.h"
#include "trireme/model/rotary_frequencies.h"
#include "trireme/ops/ops.h"
#include "trireme/optim/adafactor.h"
#include "trireme/optim/optimizer.h"

namespace trireme::bench {
namespace {

constexpr double kEps = 1e-5;
constexpr double kId = 8;  // bytes of a token's number
constexpr int64_t kRank = 8;  // of an adapter

// Bytes of one row.
double width(const Widths& w) { return static_cast<double>(w.D) * w.E(); }
double heads(const Widths& w) { return static_cast<double>((w.H + w.K) * w.d) * w.E(); }  // q and k
double logits(const Widths& w) { return static_cast<double>(w.V) * w.E(); }
double mlp(const Widths& w) { return static_cast<double>(w.F) * w.E(); }
double table_row(const Widths& w) { return static_cast<double>(w.d) * w.W(); }  // cosines and sines
double rotated(const Widths& w) { return 2 * static_cast<double>((w.H + w.K) * w.d) * w.E(); }

// Tensors of T rows, and a norm's weight.
at::Tensor hidden(Pool& p, const Widths& w, int64_t T) { return p.values({T, w.D}, w.dtype); }
at::Tensor inner(Pool& p, const Widths& w, int64_t T) { return p.values({T, w.F}, w.dtype); }
at::Tensor statistic(Pool& p, const Widths& w, int64_t T) { return p.values({T}, w.wide()); }
at::Tensor gain(Pool& p, const Widths& w) { return p.positive({w.D}, w.dtype); }

// Puts inputs back. Otherwise results that overwrite their inputs would sink to 0 or grow from call to call.
std::function<void()> restore(const at::Tensor& a, const at::Tensor& b = {}) {
  const at::Tensor a_before = a.clone(), b_before = b.defined() ? b.clone() : b;
  return [=] {
    a.copy_(a_before);
    if (b.defined()) b.copy_(b_before);
  };
}

std::vector<double> frequencies(int64_t head_dim) { return model::rotary_frequencies(10000.0, head_dim, {}); }

// A step of the optimizer over a matrix of T * D elements: kWords words of master, state and gradient, which are read
// or written once for each time that the rule needs them, and the compute copy.
template <int kWords>
double updated(const Widths& w) {
  return static_cast<double>(w.D) * (kWords * w.W() + w.E());
}

template <optim::Rule kRule>
Calls update(Pool& p, const Widths& w, int64_t T) {
  const int64_t n = T * w.D;
  const optim::OptimizerOptions options{.rule = kRule, .lr = 1e-4, .momentum = 0.9, .step = 10};
  const auto master = p.values({n}, w.wide()), gradient = p.values({n}, w.wide()), compute = p.values({n}, w.dtype);
  const auto matrix = std::make_shared<model::ParameterSpec>(model::ParameterSpec{.name = "matrix", .shape = {T, w.D}});
  const std::array segments = {optim::DecaySegment{.begin = 0, .end = n, .decay = true, .parameter = matrix.get()}};
  std::vector<at::Tensor> state;
  if (const int64_t whole = optim::whole_state_elements(kRule, segments); whole > 0)
    state.push_back(p.positive({whole}, w.wide()));
  else
    while (state.size() < optim::state_names(options).size()) state.push_back(p.positive({n}, w.wide()));
  const at::Tensor work =
      at::empty({optim::step_work_bytes(kRule, segments, master.scalar_type(), compute.scalar_type())}, at::kByte);
  const bool is_half = w.dtype == at::kHalf;  // whose copy a step converts behind the update, as here
  return Calls{[=, kept = matrix] {
    optim::step_group({master, state, gradient, is_half ? at::Tensor() : compute, work}, segments, options,
                      [](const at::Tensor&) {});
    if (is_half) compute.copy_(master);
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
  const auto gate_up = p.values({T, 2 * w.F}, w.dtype), y = inner(p, w, T);
  return {[=] { Forward(y, gate_up); }};
}
template <auto Backward>
Calls gated_backward(Pool& p, const Widths& w, int64_t T) {
  const auto gate_up = p.values({T, 2 * w.F}, w.dtype), dy = inner(p, w, T);
  return {[=] { Backward(gate_up, dy); }, restore(gate_up, dy)};
}

/// The tensors of a norm over all heads together.
struct WideNorm {
  int64_t q_width, kv_width;
  at::Tensor qkv, raw, sums, rstd, w_q, w_k;
  WideNorm(Pool& p, const Widths& w, int64_t T)
      : q_width(w.H * w.d),
        kv_width(w.K * w.d),
        qkv(p.values({T, w.R()}, w.dtype)),
        raw(p.values({T, (w.H + w.K) * w.d}, w.dtype)),
        sums(p.positive({T, 2}, w.wide())),
        rstd(p.positive({T, 2}, w.wide())),
        w_q(p.positive({q_width}, w.dtype)),
        w_k(p.positive({kv_width}, w.dtype)) {}
};

constexpr int64_t kAdapterRank = 8;  // LitGPT's and PEFT's default

constexpr MemoryCase kMemoryCases[] = {
    {"rms_norm_forward", [](const Widths& w) { return 2 * width(w) + w.W(); }, width,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = hidden(p, w, T), y = hidden(p, w, T), g = gain(p, w), rstd = statistic(p, w, T);
       return Calls{[=] { ops::rms_norm_forward(y, rstd, x, g, kEps); }};
     }},
    {"add_rms_norm_forward", [](const Widths& w) { return 4 * width(w) + w.W(); }, width,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = hidden(p, w, T), r = hidden(p, w, T), y = hidden(p, w, T), sum = hidden(p, w, T), g = gain(p, w),
                  rstd = statistic(p, w, T);
       return Calls{[=] { ops::add_rms_norm_forward(sum, y, rstd, x, r, g, kEps); }};
     }},
    {"rms_norm_backward", [](const Widths& w) { return 5 * width(w) + w.W(); },
     [](const Widths& w) { return 2 * width(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = hidden(p, w, T), dx = hidden(p, w, T), y = hidden(p, w, T), dy = hidden(p, w, T),
                  residual = hidden(p, w, T), g = gain(p, w), dg = p.values({w.D}, w.dtype),
                  rstd = p.positive({T}, w.wide());
       return Calls{[=] { ops::rms_norm_backward(dx, dg, y, dy, x, g, rstd, residual); }};
     }},
    {"head_norm_forward", [](const Widths& w) { return 3 * heads(w) + static_cast<double>(w.H + w.K) * w.W(); },
     [](const Widths& w) { return 2 * static_cast<double>(w.d) * w.E(); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto qkv = p.values({T, w.R()}, w.dtype), raw = p.values({T, (w.H + w.K) * w.d}, w.dtype),
                  w_q = p.positive({w.d}, w.dtype), w_k = p.positive({w.d}, w.dtype),
                  rstd = p.values({T, w.H + w.K}, w.wide());
       return Calls{[=, H = w.H, K = w.K] { ops::head_norm_forward(qkv, raw, rstd, w_q, w_k, H, K, kEps); }};
     }},
    {"head_norm_backward", [](const Widths& w) { return 3 * heads(w) + static_cast<double>(w.H + w.K) * w.W(); },
     [](const Widths& w) { return 4 * static_cast<double>(w.d) * w.E(); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto dqkv = p.values({T, w.R()}, w.dtype), raw = p.values({T, (w.H + w.K) * w.d}, w.dtype),
                  w_q = p.positive({w.d}, w.dtype), w_k = p.positive({w.d}, w.dtype), dw_q = p.values({w.d}, w.dtype),
                  dw_k = p.values({w.d}, w.dtype), rstd = p.positive({T, w.H + w.K}, w.wide());
       const at::Tensor before = dqkv.clone();
       return Calls{[=, H = w.H, K = w.K] { ops::head_norm_backward(dqkv, dw_q, dw_k, raw, rstd, w_q, w_k, H, K); },
                    [=] { dqkv.copy_(before); }};
     },
     Access::kInPlace},
    // The same norms over all heads together: q and k are read for the sums, and again to be scaled.
    {"wide_norm_squares", [](const Widths& w) { return heads(w) + 2 * w.W(); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto qkv = p.values({T, w.R()}, w.dtype), sums = p.values({T, 2}, w.wide());
       return Calls{[=, Q = w.H * w.d, K = w.K * w.d] { ops::wide_norm_squares(sums, qkv, Q, K); }};
     },
     Access::kRead},
    {"wide_norm_forward", [](const Widths& w) { return 3 * heads(w) + 4 * w.W(); }, heads,
     [](Pool& p, const Widths& w, int64_t T) {
       const WideNorm n(p, w, T);
       return Calls{
           [=] { ops::wide_norm_forward(n.qkv, n.raw, n.rstd, n.sums, n.w_q, n.w_k, n.q_width, n.kv_width, kEps); },
           restore(n.qkv)};
     }},
    {"wide_norm_backward_sums", [](const Widths& w) { return 2 * heads(w) + 4 * w.W(); },
     [](const Widths& w) { return 2 * heads(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const WideNorm n(p, w, T);
       const auto dw_q = p.values({n.q_width}, w.dtype), dw_k = p.values({n.kv_width}, w.dtype);
       return Calls{[=] { ops::wide_norm_backward_sums(n.sums, dw_q, dw_k, n.qkv, n.raw, n.rstd, n.w_q, n.w_k); }};
     },
     Access::kRead},
    {"wide_norm_backward", [](const Widths& w) { return 3 * heads(w) + 4 * w.W(); }, heads,
     [](Pool& p, const Widths& w, int64_t T) {
       const WideNorm n(p, w, T);
       return Calls{[=] { ops::wide_norm_backward(n.qkv, n.sums, n.raw, n.rstd, n.w_q, n.w_k, n.q_width, n.kv_width); },
                    restore(n.qkv)};
     },
     Access::kInPlace},
    {"layer_norm_forward", [](const Widths& w) { return 2 * width(w) + 2 * w.W(); },
     [](const Widths& w) { return 2 * width(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = hidden(p, w, T), y = hidden(p, w, T), g = gain(p, w), b = p.values({w.D}, w.dtype),
                  mean = statistic(p, w, T), rstd = statistic(p, w, T);
       return Calls{[=] { ops::layer_norm_forward(y, mean, rstd, x, g, b, kEps); }};
     }},
    {"add_layer_norm_forward", [](const Widths& w) { return 4 * width(w) + 2 * w.W(); },
     [](const Widths& w) { return 2 * width(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = hidden(p, w, T), r = hidden(p, w, T), y = hidden(p, w, T), sum = hidden(p, w, T), g = gain(p, w),
                  b = p.values({w.D}, w.dtype), mean = statistic(p, w, T), rstd = statistic(p, w, T);
       return Calls{[=] { ops::add_layer_norm_forward(sum, y, mean, rstd, x, r, g, b, kEps); }};
     }},
    {"layer_norm_backward", [](const Widths& w) { return 5 * width(w) + 2 * w.W(); },
     [](const Widths& w) { return 4 * width(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = hidden(p, w, T), dx = hidden(p, w, T), y = hidden(p, w, T), dy = hidden(p, w, T),
                  residual = hidden(p, w, T), g = gain(p, w), b = p.values({w.D}, w.dtype),
                  dg = p.values({w.D}, w.dtype), db = p.values({w.D}, w.dtype), mean = statistic(p, w, T),
                  rstd = p.positive({T}, w.wide());
       return Calls{[=] { ops::layer_norm_backward(dx, dg, db, y, dy, x, g, b, mean, rstd, residual); }};
     }},
    {"bias_forward", [](const Widths& w) { return 2 * mlp(w); }, mlp,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto y = inner(p, w, T), bias = p.values({w.F}, w.dtype);
       return Calls{[=] { ops::bias_forward(y, bias); }};
     },
     Access::kInPlace},
    {"bias_backward", mlp, mlp,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto dy = inner(p, w, T), dbias = p.values({w.F}, w.dtype);
       return Calls{[=] { ops::bias_backward(dbias, dy); }};
     },
     Access::kRead},
    {"add_forward", [](const Widths& w) { return 3 * width(w); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto a = hidden(p, w, T), b = hidden(p, w, T), y = hidden(p, w, T);
       return Calls{[=] { ops::add_forward(y, a, b); }};
     }},
    {"dropout_forward", [](const Widths& w) { return 2 * width(w); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = hidden(p, w, T), y = hidden(p, w, T), keys = at::arange(T, at::kInt);
       return Calls{[=] { ops::dropout_forward(y, x, {.p = 0.1, .keys = keys}); }};
     }},
    {"add_uniform_noise", [](const Widths& w) { return 2 * width(w); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto y = hidden(p, w, T), keys = at::arange(T, at::kInt);
       return Calls{[=] { ops::add_uniform_noise(y, keys, 0.01); }};
     },
     Access::kInPlace},
    {"add_product", [](const Widths& w) { return 2 * width(w) + static_cast<double>(kAdapterRank) * w.E(); },
     [](const Widths& w) { return static_cast<double>(kAdapterRank) * width(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto y = hidden(p, w, T), a = p.values({T, kAdapterRank}, w.dtype),
                  b = p.values({kAdapterRank, w.D}, w.dtype), wide = p.values({64 * w.D}, w.wide());
       return Calls{[=] { ops::add_product(y, a, b, wide); }};
     },
     Access::kInPlace},
    {"scale_columns", [](const Widths& w) { return 2 * width(w); },
     [](const Widths& w) { return static_cast<double>(w.D) * w.W(); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = hidden(p, w, T), y = hidden(p, w, T), factors = p.positive({w.D}, w.wide());
       return Calls{[=] { ops::scale_columns(y, x, factors); }};
     }},
    {"merged_squares", [](const Widths& w) { return width(w) + w.W() + static_cast<double>(kAdapterRank) * w.E(); },
     [](const Widths& w) { return static_cast<double>(kAdapterRank) * width(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto weight = hidden(p, w, T), b = p.values({T, kAdapterRank}, w.dtype),
                  a = p.values({kAdapterRank, w.D}, w.dtype), squares = p.values({T}, w.wide()),
                  wide = p.values({64 * w.D}, w.wide());
       return Calls{[=] { ops::merged_squares(squares, weight, b, a, 0.5, false, wide); }};
     },
     Access::kRead},
    {"accumulate", [](const Widths& w) { return static_cast<double>(w.D) * (2 * w.W() + w.E()); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto sum = p.values({T, w.D}, w.wide()), x = hidden(p, w, T);
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
       const auto x = inner(p, w, T), y = inner(p, w, T);
       return Calls{[=] { ops::gelu_forward(y, x); }};
     }},
    {"gelu_backward", [](const Widths& w) { return 4 * mlp(w); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = inner(p, w, T), dy = inner(p, w, T);
       return Calls{[=] { ops::gelu_backward(x, dy); }, restore(x, dy)};
     },
     Access::kInPlace},
    {"plain_forward", [](const Widths& w) { return 2 * mlp(w); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = inner(p, w, T), y = inner(p, w, T);
       return Calls{[=] { ops::plain_forward(ops::PlainActivation::kGeluExact, y, x); }};
     }},
    {"plain_backward", [](const Widths& w) { return 4 * mlp(w); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = inner(p, w, T), dy = inner(p, w, T);
       return Calls{[=] { ops::plain_backward(ops::PlainActivation::kGeluExact, x, dy); }, restore(x, dy)};
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
    {"optimizer_update, Adagrad", updated<5>, nothing, update<optim::Rule::adagrad>, Access::kInPlace},
    // These read the matrix once for its norms (LAMB also for its directions), and again to change it.
    {"optimizer_update, LARS", updated<7>, nothing, update<optim::Rule::lars>, Access::kInPlace},
    {"optimizer_update, LAMB", updated<11>, nothing, update<optim::Rule::lamb>, Access::kInPlace},
    // Sums over rows, of gradients and weights; over columns; of the step. Then the weights move.
    {"optimizer_update, Adafactor", updated<7>, nothing, update<optim::Rule::adafactor>, Access::kInPlace},
    {"squared_norm_partials", [](const Widths& w) { return static_cast<double>(w.D) * w.W(); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const int64_t n = T * w.D;
       const auto gradient = p.values({n}, w.wide());
       const auto partials = p.values({(n + optim::kNormBlock - 1) / optim::kNormBlock}, at::kDouble);
       return Calls{[=] { optim::squared_norm_partials(partials, gradient); }};
     },
     Access::kRead},
    // The table is as long as y, so each of its rows is read about once, from the same memory or cache as y. Of a
    // shorter table, the share that comes from a cache would depend on other work on the machine.
    {"embedding_forward", [](const Widths& w) { return 2 * width(w) + kId; }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto y = hidden(p, w, T), table = hidden(p, w, T), ids = p.ids(T, T);
       return Calls{[=] { ops::embedding_forward(y, ids, table, {}, 1); }};
     }},
    {"embedding_backward", [](const Widths& w) { return width(w) + 3 * kId; },
     [](const Widths& w) { return static_cast<double>(w.V) * width(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto dy = hidden(p, w, T), dtable = p.values({w.V, w.D}, w.dtype), ids = p.ids(T, w.V),
                  order = p.ids(T, T);
       return Calls{[=] { ops::embedding_backward(dtable, {}, dy, ids, order, 1); }};
     }},
    // An embedding's A of LoRA, whose rows are of one element: an id's column lies in kRank cache lines.
    {"embedding_columns_forward", [](const Widths& w) { return 2 * kRank * w.E() + kId; }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto y = p.values({T, kRank}, w.dtype), table = p.values({kRank, w.V}, w.dtype), ids = p.ids(T, w.V);
       return Calls{[=] { ops::embedding_columns_forward(y, ids, table, 2); }};
     }},
    {"embedding_columns_backward", [](const Widths& w) { return kRank * w.E() + 3 * kId; },
     [](const Widths& w) { return static_cast<double>(kRank * w.V) * w.E(); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto dy = p.values({T, kRank}, w.dtype), dtable = p.values({kRank, w.V}, w.dtype), ids = p.ids(T, w.V),
                  order = p.ids(T, T);
       return Calls{[=] { ops::embedding_columns_backward(dtable, dy, ids, order, 2); }};
     }},
    {"softcap_forward", [](const Widths& w) { return 2 * logits(w); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.V}, w.dtype);
       return Calls{[=] { ops::softcap_forward(x, 30); }};
     },
     Access::kInPlace},
    {"cross_entropy_shard_max", [](const Widths& w) { return logits(w) + w.W(); }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.V}, w.dtype), highest = statistic(p, w, T);
       return Calls{[=, V = w.V] { ops::cross_entropy_shard_max(highest, x, 0, V); }};
     },
     Access::kRead},
    {"cross_entropy_shard_sum", [](const Widths& w) { return logits(w) + 3 * w.W() + kId; }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.V}, w.dtype), highest = p.positive({T}, w.wide()), sum = statistic(p, w, T),
                  logit = statistic(p, w, T), targets = p.ids(T, w.V);
       return Calls{[=, V = w.V] { ops::cross_entropy_shard_sum(sum, logit, x, highest, targets, 0, V); }};
     },
     Access::kRead},
    {"cross_entropy_shard_loss", [](const Widths& w) { return 3 * w.W() + kId; }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto highest = p.positive({T}, w.wide()), sum = p.positive({T}, w.wide()), logit = statistic(p, w, T),
                  targets = p.ids(T, w.V), loss = p.values({1}, at::kDouble);
       return Calls{[=] { ops::cross_entropy_shard_loss(loss, highest, sum, logit, targets); }};
     }},
    {"cross_entropy_shard_backward", [](const Widths& w) { return 2 * logits(w) + 2 * w.W() + kId; }, nothing,
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.V}, w.dtype), highest = p.positive({T}, w.wide()),
                  sum = p.positive({T}, w.wide()).mul_(1000), targets = p.ids(T, w.V), before = x.clone();
       return Calls{[=, V = w.V] { ops::cross_entropy_shard_backward(x, highest, sum, targets, 1, 0, V); },
                    [=] { x.copy_(before); }};
     },
     Access::kInPlace},
};

}  // namespace

std::span<const MemoryCase> memory_cases() { return kMemoryCases; }

}  // namespace trireme::bench
