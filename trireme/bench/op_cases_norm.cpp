#include <ATen/ATen.h>

#include "trireme/bench/op_cases.h"
#include "trireme/ops/ops.h"

namespace trireme::bench {
namespace {

constexpr double kEps = 1e-5;

double row(const Widths& w) { return static_cast<double>(w.D) * w.E(); }

double heads(const Widths& w) { return static_cast<double>((w.H + w.K) * w.d) * w.E(); }  // q and k of a row

constexpr MemoryCase kNormCases[] = {
    {"rms_norm_forward", [](const Widths& w) { return 2 * row(w) + w.W(); }, [](const Widths& w) { return row(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.D}, w.dtype), y = p.values({T, w.D}, w.dtype), g = p.positive({w.D}, w.dtype),
                  rstd = p.values({T}, w.wide());
       return Calls{[=] { ops::rms_norm_forward(y, rstd, x, g, kEps); }};
     }},
    {"add_rms_norm_forward", [](const Widths& w) { return 4 * row(w) + w.W(); }, [](const Widths& w) { return row(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.D}, w.dtype), r = p.values({T, w.D}, w.dtype), y = p.values({T, w.D}, w.dtype),
                  sum = p.values({T, w.D}, w.dtype), g = p.positive({w.D}, w.dtype), rstd = p.values({T}, w.wide());
       return Calls{[=] { ops::add_rms_norm_forward(sum, y, rstd, x, r, g, kEps); }};
     }},
    {"rms_norm_backward", [](const Widths& w) { return 5 * row(w) + w.W(); },
     [](const Widths& w) { return 2 * row(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.D}, w.dtype), dx = p.values({T, w.D}, w.dtype), y = p.values({T, w.D}, w.dtype),
                  dy = p.values({T, w.D}, w.dtype), residual = p.values({T, w.D}, w.dtype),
                  g = p.positive({w.D}, w.dtype), dg = p.values({w.D}, w.dtype), rstd = p.positive({T}, w.wide());
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
    {"layer_norm_forward", [](const Widths& w) { return 2 * row(w) + 2 * w.W(); },
     [](const Widths& w) { return 2 * row(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.D}, w.dtype), y = p.values({T, w.D}, w.dtype), g = p.positive({w.D}, w.dtype),
                  b = p.values({w.D}, w.dtype), mean = p.values({T}, w.wide()), rstd = p.values({T}, w.wide());
       return Calls{[=] { ops::layer_norm_forward(y, mean, rstd, x, g, b, kEps); }};
     }},
    {"add_layer_norm_forward", [](const Widths& w) { return 4 * row(w) + 2 * w.W(); },
     [](const Widths& w) { return 2 * row(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.D}, w.dtype), r = p.values({T, w.D}, w.dtype), y = p.values({T, w.D}, w.dtype),
                  sum = p.values({T, w.D}, w.dtype), g = p.positive({w.D}, w.dtype), b = p.values({w.D}, w.dtype),
                  mean = p.values({T}, w.wide()), rstd = p.values({T}, w.wide());
       return Calls{[=] { ops::add_layer_norm_forward(sum, y, mean, rstd, x, r, g, b, kEps); }};
     }},
    {"layer_norm_backward", [](const Widths& w) { return 5 * row(w) + 2 * w.W(); },
     [](const Widths& w) { return 4 * row(w); },
     [](Pool& p, const Widths& w, int64_t T) {
       const auto x = p.values({T, w.D}, w.dtype), dx = p.values({T, w.D}, w.dtype), y = p.values({T, w.D}, w.dtype),
                  dy = p.values({T, w.D}, w.dtype), residual = p.values({T, w.D}, w.dtype),
                  g = p.positive({w.D}, w.dtype), b = p.values({w.D}, w.dtype), dg = p.values({w.D}, w.dtype),
                  db = p.values({w.D}, w.dtype), mean = p.values({T}, w.wide()), rstd = p.positive({T}, w.wide());
       return Calls{[=] { ops::layer_norm_backward(dx, dg, db, y, dy, x, g, b, mean, rstd, residual); }};
     }},
};

}  // namespace

std::span<const MemoryCase> norm_cases() { return kNormCases; }

}  // namespace trireme::bench
