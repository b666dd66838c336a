// What one operation takes on a machine, and which activity it counts as.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/costs/step_costs.h"

namespace trireme::costs {
namespace {

/// Figures that an operation's time is proportional to, for its kind: multiplications, pairs of tokens, elements.
double size_of(std::string_view name, double m, double n, double k) {
  if (name.find("product") != std::string_view::npos || name == "merged_squares") return m * n * k;
  if (name.starts_with("attention_")) return m * m * n;
  return m * n;
}

/// How far an operation is from a full causal call of its shape: windows and other ranks' keys.
double part_of_causal(const ops::Operation& o) {
  if (o.name != std::string_view("attention_forward") && o.name != std::string_view("attention_backward")) return 1;
  const double times = o.name == std::string_view("attention_forward") ? 4 : 10;
  const double causal = times * double(o.n) * double(o.m) * double(o.m + 1) / 2;
  return causal > 0 ? o.flops / causal : 1;
}

struct Neighbour {
  double distance;  ///< squared, in octaves
  double seconds_per_size;
};

/// The mean of seconds per size, of the nearest few, the nearer the heavier; negative: nothing is known.
double interpolate(std::vector<Neighbour> all) {
  constexpr size_t kNearest = 6;
  if (all.empty()) return -1;
  const size_t count = std::min(kNearest, all.size());
  std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(count), {}, &Neighbour::distance);
  double sum = 0, weights = 0;
  for (size_t i = 0; i < count; ++i) {
    const double weight = 1 / (all[i].distance * all[i].distance + 1e-4);
    sum += weight * std::log(all[i].seconds_per_size);
    weights += weight;
  }
  return std::exp(sum / weights);
}

double octaves(double a, double b) { return std::log2(std::max(a, 1.0) / std::max(b, 1.0)); }

double measured_operation(const Machines& machines, const ops::Operation& o) {
  // First those that were measured with as many ranks and threads as will be busy.
  double nearest = std::numeric_limits<double>::infinity();
  const auto busy = [&](const MeasuredOperation& m) {
    return std::abs(octaves(double(m.ranks), double(machines.ranks))) +
           std::abs(octaves(double(m.threads), double(machines.threads)));
  };
  const auto fits = [&](const MeasuredOperation& m) {
    return m.name == o.name && m.dtype == o.dtype && m.m > 0 && m.n > 0 && m.k > 0;
  };
  for (const MeasuredOperation& m : machines.hardware.measured_operations)
    if (fits(m)) nearest = std::min(nearest, busy(m));
  std::vector<Neighbour> all;
  for (const MeasuredOperation& m : machines.hardware.measured_operations) {
    if (!fits(m) || busy(m) > nearest + 1e-9) continue;
    const double dm = octaves(double(o.m), double(m.m)), dn = octaves(double(o.n), double(m.n)),
                 dk = octaves(double(o.k), double(m.k));
    all.push_back({dm * dm + dn * dn + dk * dk, m.seconds / size_of(m.name, double(m.m), double(m.n), double(m.k))});
  }
  const double rate = interpolate(std::move(all));
  return rate < 0 ? -1 : rate * size_of(o.name, double(o.m), double(o.n), double(o.k)) * part_of_causal(o);
}

double by_peaks(const Machines& machines, const ops::Operation& o) {
  const Hardware& h = machines.hardware;
  const double cores = h.shares_cores ? double(machines.threads) : 1;  // its figures are of one core
  const bool float8 = o.name == std::string_view("float8_product");
  const double peak = h.peak_flops(o.dtype, float8);
  double share = h.share.product;
  if (activity_of(o) == base::Activity::attention) {
    share = h.share.attention;
  } else {
    for (const int64_t x : {o.m, o.n, o.k}) share *= double(x) / (double(x) + h.share.product_half);
  }
  const double arithmetic = o.flops > 0 && peak > 0 ? o.flops / (cores * peak * share) : 0;
  const double memory = h.memory_rate > 0 ? o.bytes / (1e9 * cores * h.memory_rate * h.share.memory) : 0;
  return std::max(arithmetic, memory) + 1e-6 * h.launch;
}

}  // namespace

base::Activity activity_of(const ops::Operation& o) {
  const std::string_view name = o.name;
  if (name.find("product") != std::string_view::npos || name == "module" || name == "merged_squares")
    return base::Activity::products;
  if (name.starts_with("attention_")) return base::Activity::attention;
  if (name == "optimizer_step" || name == "norm_partials") return base::Activity::optimizer;
  return base::Activity::elementwise;
}

double operation_seconds(const Machines& machines, const ops::Operation& operation) {
  if (operation.m <= 0 || operation.n <= 0 || operation.k <= 0) return 0;
  const double measured = measured_operation(machines, operation);
  return measured >= 0 ? measured : by_peaks(machines, operation);
}

}  // namespace trireme::costs
