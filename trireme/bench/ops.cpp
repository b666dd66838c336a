#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "trireme/base/processor.h"
#include "trireme/base/text.h"
#include "trireme/bench/commands.h"
#include "trireme/bench/limits.h"
#include "trireme/bench/measure.h"
#include "trireme/bench/op_cases.h"
#include "trireme/machine/limits.h"
#include "trireme/train/setup.h"

namespace trireme::bench {
namespace {

struct Size {
  const char* where;
  int64_t moved_bytes;  // by one call, about
  std::string copy = {}, update = {}, read = {};  // limits; empty: none

  const std::string& limit(Access access) const {
    return access == Access::kCopy ? copy : access == Access::kInPlace ? update : read;
  }
};

// The rate of memory, measured between a row's samples, so that other work on the machine slows both.
class Beside {
 public:
  explicit Beside(int threads) : passes_(threads) {}
  void sample(Access access) {
    if (access == Access::kRead) return reads_.push_back(passes_.read());
    copies_.push_back(passes_.copy());
    if (access == Access::kInPlace) updates_.push_back(passes_.update());
  }
  /// The median since the last call, in GB/s; if two kinds of passes were sampled, of the faster one.
  double take() {
    double best = 0;
    for (auto* rates : {&copies_, &updates_, &reads_}) {
      best = std::max(best, quantile(*rates, 0.5) * 1e-9);
      rates->clear();
    }
    return best;
  }

 private:
  machine::MemoryPasses passes_;
  std::vector<double> copies_, updates_, reads_;
};

// Enough for the largest case; it may be one with large fixed tables. Operations on q and k have v beside them, which
// they do not move. Values to restore are kept outside the pool.
int64_t pool_bytes(const Widths& w, int64_t largest_call, int64_t batch) {
  const int64_t T = batch * w.S, word = static_cast<int64_t>(w.W());
  const int64_t products = 2 * word * (T * (4 * w.D + 4 * w.F + 4 * w.R()) + 2 * w.D * w.F);
  const int64_t head = word * (4 * w.V * w.D + 4 * T * w.D) + word * (int64_t{16} << 20);
  return std::max({largest_call + largest_call / 2 + (int64_t{64} << 20), products, head}) + word * w.V * w.D;
}

}  // namespace

int bench_ops(const Settings& settings, const std::string& command) {
  const int threads = use_threads(settings);
  const Budget budget = Budget::of(settings.bench.quick);
  const at::ScalarType dtype = train::resolve_precision(settings).compute;
  const Widths w = [&] {
    Widths widths = widths_of(model::config_of(settings.model), dtype);
    widths.S = train::sequence_length(settings, model::config_of(settings.model));
    return widths;
  }();
  const int64_t batch = settings.train.micro_batch_size;
  Limits limits(threads);
  // Two sizes, read plus written: eight times the last-level cache, and half of a core's own cache. At
  // most a gibibyte: no case has more rows than a rotary table has positions.
  const int64_t most = settings.bench.quick ? int64_t{64} << 20 : int64_t{1} << 30,
                last_level = base::last_level_cache_bytes(threads);
  const int64_t beyond = std::clamp<int64_t>(8 * last_level, int64_t{64} << 20, most),
                inside = base::core_cache_bytes() / 2 * threads;
  // Of a quick run's values, much may lie in the last-level cache, whose rate has no measure here.
  const bool leaves_caches = beyond >= (settings.bench.quick ? 4 : 2) * last_level;
  const Size sizes[] = {leaves_caches ? Size{"memory", beyond, limits.copy(), limits.update(), limits.read()}
                                      : Size{"memory or its cache", beyond},
                        {"cache", inside, limits.copy(inside), limits.update(inside), limits.read(inside)}};
  const std::string arithmetic = limits.arithmetic(dtype);
  const std::string suffix = fmt::format(", {}, {}", dtype_name(dtype), base::plural(threads, "thread"));

  Report report = new_report("ops", command);
  Progress progress("bench ops");
  std::optional<Beside> beside;
  if (leaves_caches) beside.emplace(threads);
  Pool pool(pool_bytes(w, beyond, batch));
  const std::span<const MemoryCase> memory = memory_cases();
  const std::vector<ArithmeticRecipe> products = arithmetic_cases();
  const auto total = static_cast<int64_t>(2 * memory.size() + products.size());
  for (const MemoryCase& c : memory) {
    for (const Size& size : sizes) {
      progress.step(std::ssize(report.rows), total, c.name);
      // A case whose table alone fills the cache has no small size.
      if (c.fixed_bytes(w) > static_cast<double>(size.moved_bytes) / 2) continue;
      const int64_t rows = c.rows_for(w, size.moved_bytes);
      const double moved = c.moved_bytes(w, rows);
      pool.clear();
      const Calls calls = c.make(pool, w, rows);
      Row row{.name = c.name,
              .shape = fmt::format("{} rows, {} in {}{}", rows, base::human_bytes(static_cast<int64_t>(moved)),
                                   size.where, suffix),
              .unit = "GB/s",
              .limit = size.limit(c.access)};
      // At sizes inside a core's cache, no limit is measured between samples: other work cannot disturb that cache, and
      // such passes would evict the values.
      std::function<void()> passes;
      const bool compares = beside && size.moved_bytes == beyond;
      if (compares) passes = [&] { beside->sample(c.access); };
      set_times(row, time_calls(calls.call, budget, calls.prepare, passes), moved * 1e-9);
      if (compares) row.limit_beside = beside->take();
      report.rows.push_back(row);
    }
  }
  for (const ArithmeticRecipe& recipe : products) {
    progress.step(std::ssize(report.rows), total, recipe.name);
    pool.clear();
    const ArithmeticCase c = recipe.make(pool, w, batch);
    Row row{.name = recipe.name, .shape = c.shape + suffix, .unit = "GFLOP/s", .limit = arithmetic};
    set_times(row, time_calls(c.calls.call, budget, c.calls.prepare), c.flops * 1e-9);
    report.rows.push_back(row);
  }
  limits.again();
  report.limits = limits.all();
  deliver(report, settings);
  return 0;
}

}  // namespace trireme::bench
