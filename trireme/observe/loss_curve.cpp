#include "trireme/observe/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "trireme/base/text.h"

namespace trireme::observe {
namespace {
constexpr double kLogarithmicFrom = 2.5;  // ratio of the largest to the smallest loss
constexpr double kFlat = 1e-9;            // losses that differ by a smaller share are one value, with other rounding
// Losses beyond these powers have ratios and margins that double does not hold.
constexpr double kLeastLogarithmic = 1e-100, kMostLogarithmic = 1e100;

// The smallest of 1, 2, 5, 10, 20, ... that is at least `least`.
double nice_distance(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

std::vector<double> linear_ticks(double low, double high, int most_ticks) {
  const double distance = nice_distance((high - low) / most_ticks);
  // The count ends the loop whatever double makes of tiny distances.
  const auto most = static_cast<size_t>(most_ticks) + 2;
  std::vector<double> ticks;
  for (double i = std::ceil(low / distance - 1e-9); i * distance <= high + 1e-9 * distance && ticks.size() < most; ++i)
    ticks.push_back(i * distance);
  return ticks;
}

// Round numbers in [low, high]: the densest of some rows that has no more than `most_ticks` there.
std::vector<double> logarithmic_ticks(double low, double high, int most_ticks) {
  static const std::array<std::vector<double>, 6> kRows = {{{1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9},
                                                            {1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8},
                                                            {1, 1.5, 2, 2.5, 3, 4, 5, 6, 8},
                                                            {1, 1.5, 2, 3, 4, 6},
                                                            {1, 2, 4},
                                                            {1}}};
  std::vector<double> ticks;
  for (const auto& row : kRows) {
    ticks.clear();
    for (double power = std::pow(10.0, std::floor(std::log10(low))); power <= high; power *= 10) {
      for (const double factor : row)
        if (factor * power >= low && factor * power <= high) ticks.push_back(factor * power);
    }
    if (static_cast<int>(ticks.size()) <= most_ticks) break;
  }
  return ticks;
}
}  // namespace

LossCurve loss_curve_of(const std::vector<MetricsRow>& rows, std::string title, std::string unit) {
  LossCurve curve{.title = std::move(title), .unit = std::move(unit), .training = {}, .validation = {}};
  if (!rows.empty()) {
    const bool any = std::ranges::any_of(rows, [](const MetricsRow& row) { return row.loss.has_value(); });
    curve.without_losses = any ? "no step has a finite loss, so there is none to draw"
                               : "no step learned from a token, so there is no loss to draw";
  }
  for (const auto& row : rows) {
    if (row.loss && std::isfinite(*row.loss)) curve.training.push_back({row.step, *row.loss});
    if (row.resumed) curve.resumes.push_back(*row.resumed);
    if (row.val_loss && std::isfinite(*row.val_loss)) curve.validation.push_back({row.step, *row.val_loss});
  }
  const auto earlier = [](const LossPoint& a, const LossPoint& b) { return a.step < b.step; };
  std::stable_sort(curve.training.begin(), curve.training.end(), earlier);
  std::stable_sort(curve.validation.begin(), curve.validation.end(), earlier);
  return curve;
}

namespace {
// The polygonal line through the points, and the area under it.
class PointLine {
 public:
  explicit PointLine(const std::vector<LossPoint>& points) : points_(points), areas_{0} {
    for (size_t i = 1; i < points.size(); ++i)
      areas_.push_back(areas_.back() +
                       double(points[i].step - points[i - 1].step) * (points[i - 1].loss + points[i].loss) / 2);
  }

  /// From the first point to `step`, which lies between the first and the last one.
  double area_up_to(double step) const {
    const auto behind = std::upper_bound(points_.begin(), points_.end(), step,
                                         [](double s, const LossPoint& p) { return s < double(p.step); });
    const auto i = static_cast<size_t>(std::max<std::ptrdiff_t>(1, behind - points_.begin()) - 1);
    if (i + 1 == points_.size()) return areas_[i];
    const LossPoint &a = points_[i], &b = points_[i + 1];
    const double width = step - double(a.step);
    const double slope = (b.loss - a.loss) / double(b.step - a.step);
    return areas_[i] + width * (a.loss + slope * width / 2);
  }

 private:
  const std::vector<LossPoint>& points_;
  std::vector<double> areas_;
};
}  // namespace

std::vector<LossPoint> smoothed(const std::vector<LossPoint>& points) {
  std::vector<LossPoint> result(points);
  if (points.size() < 2) return result;
  const PointLine line(points);
  const auto first = double(points.front().step), last = double(points.back().step);
  const double half = (last - first) / 60;
  for (LossPoint& point : result) {
    const auto step = double(point.step);
    const double before = std::min(half, step - first), after = std::min(before, last - step);
    // A window without a neighbouring point leaves the point as it is.
    const auto distance = [&](auto other) { return std::abs(double(other->step) - step); };
    const auto here = points.begin() + (&point - result.data());
    const bool is_alone = (here == points.begin() || distance(here - 1) > before) &&
                          (here + 1 == points.end() || distance(here + 1) > after);
    if (!is_alone && before + after > 0)
      point.loss = (line.area_up_to(step + after) - line.area_up_to(step - before)) / (before + after);
  }
  return result;
}

bool terminal_shows_utf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    std::string name(value);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name.find("utf-8") != std::string::npos || name.find("utf8") != std::string::npos;
  }
  return false;
}

namespace detail {

double Axis::place(double value) const {
  if (logarithmic) return std::log(value / low) / std::log(high / low);
  return (value - low) / (high - low);
}

std::string Axis::label(double tick) const {
  if (std::abs(tick) >= 1000) return base::human_count(std::llround(tick));
  // What is far smaller than the distance of two ticks is rounding: then a tick at 0 is no "-0".
  double distance = std::abs(tick);
  for (size_t i = 1; i < ticks.size(); ++i) {
    const double apart = std::abs(ticks[i] - ticks[i - 1]);
    distance = i == 1 ? apart : std::min(distance, apart);
  }
  const double rounding = 1e-6 * distance, shown = std::abs(tick) <= rounding ? 0.0 : tick;
  // The fewest decimals that show all ticks exactly.
  for (int decimals = 0; decimals < 6; ++decimals) {
    const bool exact = std::all_of(ticks.begin(), ticks.end(), [&](double t) {
      const double scale = std::pow(10.0, decimals);
      return std::abs(t * scale - std::round(t * scale)) <= rounding * scale;
    });
    if (exact) return fmt::format("{:.{}f}", shown, decimals);
  }
  return fmt::format("{:.3g}", shown);
}

Axis loss_axis(const LossCurve& curve, int most_ticks) {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const auto* points : {&curve.training, &curve.validation}) {
    for (const auto& point : *points) {
      low = std::min(low, point.loss);
      high = std::max(high, point.loss);
    }
  }
  if (low > high) low = 0, high = 1;
  Axis axis;
  axis.logarithmic = low >= kLeastLogarithmic && high <= kMostLogarithmic && high / low >= kLogarithmicFrom;
  if (axis.logarithmic) {
    const double margin = std::pow(high / low, 0.04);
    axis.low = low / margin;
    axis.high = high * margin;
    axis.ticks = logarithmic_ticks(axis.low, axis.high, most_ticks);
  } else {
    const bool is_flat = !(high - low > kFlat * std::max(std::abs(high), std::abs(low)));
    const double margin = is_flat ? std::max(0.05 * std::abs(high), 1e-3) : 0.05 * (high - low);
    axis.low = low - margin;
    axis.high = high + margin;
    axis.ticks = linear_ticks(axis.low, axis.high, most_ticks);
  }
  return axis;
}

Axis step_axis(const LossCurve& curve, int most_ticks) {
  double last = 1;
  for (const auto* points : {&curve.training, &curve.validation})
    if (!points->empty()) last = std::max(last, static_cast<double>(points->back().step));
  Axis axis{.low = 0, .high = last, .logarithmic = false, .ticks = {}};
  const double distance = std::max(1.0, nice_distance(last / most_ticks));  // there are no half steps
  for (double tick = 0; tick <= last; tick += distance) axis.ticks.push_back(tick);
  return axis;
}

}  // namespace detail
}  // namespace trireme::observe
