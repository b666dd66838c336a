#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/bench/commands.h"
#include "trireme/bench/gemm_products.h"
#include "trireme/bench/limits.h"
#include "trireme/bench/measure.h"
#include "trireme/machine/limits.h"
#include "trireme/model/model.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"
#include "trireme/train/setup.h"

namespace trireme::bench {
namespace {

std::vector<Product> products_of(const model::ModelConfig& c) {
  const bool in_out = c.architecture == model::Architecture::gpt2;
  const int64_t attended = c.num_attention_heads * c.head_dim, blocks = c.num_hidden_layers;
  return {{"qkv", c.hidden_size, attended + 2 * c.num_key_value_heads * c.head_dim, blocks, in_out},
          {"o", attended, c.hidden_size, blocks, in_out},
          {c.gated_mlp ? "gate+up" : "up", c.hidden_size, (c.gated_mlp ? 2 : 1) * c.intermediate_size, blocks, in_out},
          {"down", c.intermediate_size, c.hidden_size, blocks, in_out},
          {"head", c.hidden_size, c.vocab_size, 1, false}};
}

struct Operands {
  at::Tensor x, w, y, dx, dw, dy;
};

Operands operands(const Product& p, int64_t tokens, at::ScalarType dtype) {
  const auto values = [dtype](at::IntArrayRef sizes) { return at::rand(sizes).sub_(0.5).to(dtype); };
  const auto result = [dtype](at::IntArrayRef sizes) { return at::zeros(sizes, dtype); };
  const std::vector<int64_t> weight = p.in_out ? std::vector{p.in, p.out} : std::vector{p.out, p.in};
  return {values({tokens, p.in}), values(weight), result({tokens, p.out}),
          result({tokens, p.in}), result(weight), values({tokens, p.out})};
}

struct Direction {
  const char* name;
  void (*run)(const Operands& o, bool in_out);
  at::Tensor (*result)(const Operands& o);
  at::Tensor (*expected)(const Operands& o, bool in_out);  // its first rows, in float64
};

constexpr int64_t kCheckedRows = 4;

at::Tensor rows(const at::Tensor& t) { return t.narrow(0, 0, std::min(kCheckedRows, t.size(0))).to(at::kDouble); }
at::Tensor columns(const at::Tensor& t) { return t.narrow(1, 0, std::min(kCheckedRows, t.size(1))).to(at::kDouble); }
at::Tensor whole(const at::Tensor& t) { return t.to(at::kDouble); }

// The letters say which operands are transposed (T), as in BLAS. Weights are [out, in] unless in_out.
const Direction kDirections[] = {
    {"forward NT",
     [](const Operands& o, bool in_out) { (in_out ? ops::linear_in_out_forward : ops::linear_forward)(o.y, o.x, o.w); },
     [](const Operands& o) { return o.y; },
     [](const Operands& o, bool in_out) { return rows(o.x).mm(in_out ? whole(o.w) : whole(o.w).t()); }},
    {"input gradient NN",
     [](const Operands& o, bool in_out) {
       (in_out ? ops::linear_in_out_backward_input : ops::linear_backward_input)(o.dx, o.dy, o.w);
     },
     [](const Operands& o) { return o.dx; },
     [](const Operands& o, bool in_out) { return rows(o.dy).mm(in_out ? whole(o.w).t() : whole(o.w)); }},
    {"weight gradient TN",
     [](const Operands& o, bool in_out) {
       (in_out ? ops::linear_in_out_backward_weight : ops::linear_backward_weight)(o.dw, o.dy, o.x);
     },
     [](const Operands& o) { return o.dw; },
     [](const Operands& o, bool in_out) {
       return in_out ? columns(o.x).t().mm(whole(o.dy)) : columns(o.dy).t().mm(whole(o.x));
     }}};

void check(const Product& p, const Direction& d, const Operands& o) {
  const at::Tensor expected = d.expected(o, p.in_out), found = rows(d.result(o));
  const double error = (found - expected).norm().item<double>() / expected.norm().item<double>();
  const double allowed = ops::is_narrow(o.x.scalar_type()) ? 1e-2 : 1e-5;
  if (!(error < allowed))
    throw Error(fmt::format("bench gemm: {} {} is off by {:.1e}, more than {:.0e}; nothing was timed after it", p.name,
                            d.name, error, allowed));
}

// While rows are added, `sum` keeps seconds in spread, GFLOP in rate, and the seconds at the limits in limit_beside.
void add(Row& sum, const Row& row, double times, double gflop) {
  sum.median_seconds += row.median_seconds * times;
  sum.best_seconds += row.best_seconds * times;
  sum.spread += row.spread * row.median_seconds * times;
  sum.rate += gflop * times;
  sum.limit_beside += gflop * times / row.limit_beside;
  sum.samples = sum.samples == 0 ? row.samples : std::min(sum.samples, row.samples);
}

}  // namespace

int bench_gemm(const Settings& settings, const std::string& command) {
  const int threads = use_threads(settings);
  const model::ModelConfig config = model::config_of(settings.model);
  const at::ScalarType dtype = train::resolve_precision(settings).compute;
  const int64_t tokens = settings.train.micro_batch_size * train::sequence_length(settings, config);
  const std::vector<Product> products = products_of(config);
  Report report = new_report("gemm", command);
  Limits limits(threads);
  const std::string limit = limits.arithmetic(dtype);
  const machine::RegisterPasses passes(dtype, threads);
  Progress progress("bench gemm");
  const int64_t total = static_cast<int64_t>(products.size() * std::size(kDirections));
  Row all{.name = "all of a micro-batch",
          .shape = fmt::format("{}, {} tokens, {}, {}", config.name, tokens, dtype_name(dtype),
                               base::plural(threads, "thread")),
          .unit = "GFLOP/s",
          .limit = limit};
  for (const Product& p : products) {
    const Operands o = operands(p, tokens, dtype);
    for (const Direction& d : kDirections) {
      Row row{.name = fmt::format("{} {}", p.name, d.name),
              .shape = fmt::format("{} x {} -> {}, {}, {}", tokens, p.in, p.out, dtype_name(dtype),
                                   base::plural(threads, "thread")),
              .unit = "GFLOP/s",
              .limit = limit};
      progress.step(std::ssize(report.rows), total, row.name);
      d.run(o, p.in_out);
      check(p, d, o);
      const double gflop = 2e-9 * static_cast<double>(tokens * p.in * p.out);
      std::vector<double> beside;
      const auto samples = time_calls([&] { d.run(o, p.in_out); }, Budget::of(settings.bench.quick), {},
                                      [&] { beside.push_back(passes.flops() * 1e-9); });
      set_times(row, samples, gflop);
      row.limit_beside = quantile(beside, 0.5);
      add(all, row, static_cast<double>(p.times), gflop);
      report.rows.push_back(row);
    }
  }
  all.spread /= all.median_seconds;
  all.limit_beside = all.rate / all.limit_beside;
  all.rate = all.rate / all.median_seconds;
  report.rows.push_back(all);
  add_packed_rows(
      report, limits,
      {.model = config.name, .products = products, .dtype = dtype, .threads = threads, .quick = settings.bench.quick});
  limits.again();
  report.limits = limits.all();
  deliver(report, settings);
  return 0;
}

}  // namespace trireme::bench
