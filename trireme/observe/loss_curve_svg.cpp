#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "trireme/base/text.h"
#include "trireme/observe/loss_curve.h"

namespace trireme::observe {
namespace {
constexpr double kWidth = 860, kHeight = 440;
constexpr double kLeft = 66, kRight = 64, kTop = 62, kBottom = 54;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
constexpr size_t kMostBuckets = 700;  // about one for each unit of the plot's width

constexpr std::string_view kStyle = R"(<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #5b6773 }
.paper { fill: #ffffff }
.title { font-size: 16px; font-weight: 600; fill: #1d252c }
.value { font-weight: 600 }
.grid { stroke: #e6eaee; stroke-width: 1 }
.axis { stroke: #aab4be; stroke-width: 1 }
.raw { fill: none; stroke: #9dbcf0; stroke-width: 1; stroke-linejoin: round }
.training { fill: none; stroke: #1f5fd0; stroke-width: 2.2; stroke-linejoin: round; stroke-linecap: round }
.resume { stroke: #8a949e; stroke-width: 1; stroke-dasharray: 2 3 }
.valline { fill: none; stroke: #c9480b; stroke-width: 1; stroke-dasharray: 3 3 }
.validation { fill: #c9480b; stroke: #ffffff; stroke-width: 1.2 }
.trainingtext { fill: #1f5fd0 }
.validationtext { fill: #c9480b }
@media (prefers-color-scheme: dark) {
text { fill: #9ba7b3 }
.paper { fill: #14191e }
.title { fill: #e7ebee }
.grid { stroke: #262e36 }
.axis { stroke: #55606b }
.raw { stroke: #35507f }
.training { stroke: #7fadff }
.valline { stroke: #ff9d5c }
.validation { fill: #ff9d5c; stroke: #14191e }
.trainingtext { fill: #7fadff }
.validationtext { fill: #ff9d5c }
}
</style>
)";

struct Frame {
  detail::Axis steps, losses;
  double x(double step) const { return kLeft + kPlotWidth * steps.place(step); }
  double y(double loss) const { return kTop + kPlotHeight * (1 - losses.place(loss)); }
};

// A long run has more points than the picture has columns: each bucket keeps its lowest and highest.
std::vector<LossPoint> thinned(const std::vector<LossPoint>& points) {
  if (points.size() <= 2 * kMostBuckets) return points;
  std::vector<LossPoint> kept;
  const auto lower = [](const LossPoint& a, const LossPoint& b) { return a.loss < b.loss; };
  for (size_t bucket = 0; bucket < kMostBuckets; ++bucket) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(bucket * points.size() / kMostBuckets);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((bucket + 1) * points.size() / kMostBuckets);
    auto [low, high] = std::minmax_element(begin, end, lower);
    if (high < low) std::swap(low, high);
    kept.push_back(*low);
    if (high != low) kept.push_back(*high);
  }
  return kept;
}

std::string polyline(const std::vector<LossPoint>& points, const Frame& frame, std::string_view style) {
  std::string out = fmt::format("<polyline class=\"{}\" points=\"", style);
  for (const auto& p : points)
    out += fmt::format("{:.1f},{:.1f} ", frame.x(static_cast<double>(p.step)), frame.y(p.loss));
  if (!points.empty()) out.pop_back();
  return out + "\"/>\n";
}

std::string axes(const Frame& frame, const std::string& unit) {
  std::string out;
  for (const double tick : frame.losses.ticks) {
    const double y = frame.y(tick);
    out += fmt::format("<line class=\"grid\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/>\n", kLeft, y,
                       kLeft + kPlotWidth, y);
    out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 9, y + 4,
                       frame.losses.label(tick));
  }
  const double floor = kTop + kPlotHeight;
  out += fmt::format("<line class=\"axis\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", kLeft, floor,
                     kLeft + kPlotWidth, floor);
  for (const double tick : frame.steps.ticks) {
    const double x = frame.x(tick);
    out +=
        fmt::format("<line class=\"axis\" x1=\"{:.1f}\" y1=\"{}\" x2=\"{:.1f}\" y2=\"{}\"/>\n", x, floor, x, floor + 5);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x, floor + 19,
                       frame.steps.label(tick));
  }
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">optimizer steps</text>\n", kLeft + kPlotWidth / 2,
                     floor + 40);
  const double middle = kTop + kPlotHeight / 2;
  out += fmt::format("<text transform=\"translate(17 {}) rotate(-90)\" text-anchor=\"middle\">loss, {}{}</text>\n",
                     middle, base::escape_xml(unit), frame.losses.logarithmic ? " (log scale)" : "");
  return out;
}

// In the upper right corner, which a falling curve leaves free.
std::string legend(const LossCurve& curve) {
  const double x = kLeft + kPlotWidth - 150;
  double y = kTop + 14;
  const int num_entries = curve.validation.empty() ? 2 : 3;
  std::string out = fmt::format("<g>\n<rect class=\"paper\" x=\"{}\" y=\"{}\" width=\"158\" height=\"{}\"/>\n", x - 8,
                                kTop, 19 * num_entries + 8);
  const auto entry = [&](std::string_view mark, std::string_view label) {
    out += fmt::format("<g transform=\"translate({} {})\">{}<text x=\"32\" y=\"4\">{}</text></g>\n", x, y, mark, label);
    y += 19;
  };
  entry(R"(<line class="training" x1="0" y1="0" x2="24" y2="0"/>)", "training, smoothed");
  entry(R"(<line class="raw" x1="0" y1="0" x2="24" y2="0"/>)", "training, as logged");
  if (!curve.validation.empty()) {
    entry(R"(<line class="valline" x1="0" y1="0" x2="24" y2="0"/><circle class="validation" cx="12" cy="0" r="4"/>)",
          "held out");
  }
  return out + "</g>\n";
}

// A vertical line at each step from which the run was resumed; its label is on the side that has room.
std::string resumes(const LossCurve& curve, const Frame& frame) {
  std::string out;
  for (const int64_t step : curve.resumes) {
    const double x = frame.x(static_cast<double>(step));
    const bool is_left = x < kLeft + kPlotWidth / 2;
    out += fmt::format("<line class=\"resume\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n", x, kTop,
                       kTop + kPlotHeight);
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"{}\">resumed</text>\n", is_left ? x + 4 : x - 4,
                       kTop + kPlotHeight - 6, is_left ? "start" : "end");
  }
  return out;
}

// The last values, at the right of the plot. If they would overlap, they are moved apart by a line's height.
std::string end_labels(const LossCurve& curve, const std::vector<LossPoint>& smooth, const Frame& frame) {
  double training_y = frame.y(smooth.back().loss) + 4;
  std::string out;
  if (!curve.validation.empty()) {
    double validation_y = frame.y(curve.validation.back().loss) + 4;
    if (std::abs(validation_y - training_y) < 15) {
      const double middle = (validation_y + training_y) / 2;
      const double side = validation_y <= training_y ? -7.5 : 7.5;
      validation_y = middle + side;
      training_y = middle - side;
    }
    out += fmt::format("<text class=\"value validationtext\" x=\"{:.1f}\" y=\"{:.1f}\">{:.3f}</text>\n",
                       frame.x(static_cast<double>(curve.validation.back().step)) + 9, validation_y,
                       curve.validation.back().loss);
  }
  return out + fmt::format("<text class=\"value trainingtext\" x=\"{:.1f}\" y=\"{:.1f}\">{:.3f}</text>\n",
                           frame.x(static_cast<double>(smooth.back().step)) + 9, training_y, smooth.back().loss);
}

std::string summary(const LossCurve& curve, const std::vector<LossPoint>& smooth) {
  if (curve.training.empty()) return curve.without_losses;
  std::string text =
      fmt::format("{}; training loss {:.3f}", base::plural(curve.training.back().step, "step"), smooth.back().loss);
  if (!curve.validation.empty()) {
    const auto best = std::min_element(curve.validation.begin(), curve.validation.end(),
                                       [](const LossPoint& a, const LossPoint& b) { return a.loss < b.loss; });
    text += fmt::format(", held-out loss {:.3f}", curve.validation.back().loss);
    if (best->step != curve.validation.back().step)
      text += fmt::format(" (lowest {:.3f} at step {})", best->loss, base::human_count(best->step));
  }
  return text;
}
}  // namespace

std::string loss_curve_svg(const LossCurve& curve) {
  const std::vector<LossPoint> smooth = smoothed(curve.training);
  const Frame frame{detail::step_axis(curve, 8), detail::loss_axis(curve, 9)};
  const std::string about = base::escape_xml(summary(curve, smooth));
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\">\n"
      "<title>{2}</title>\n<desc>Loss curve: {3}</desc>\n",
      kWidth, kHeight, base::escape_xml(curve.title), about);
  out += kStyle;
  out += fmt::format("<rect class=\"paper\" width=\"{}\" height=\"{}\"/>\n", kWidth, kHeight);
  out += fmt::format("<text class=\"title\" x=\"{}\" y=\"26\">{}</text>\n", kLeft, base::escape_xml(curve.title));
  out += fmt::format("<text x=\"{}\" y=\"45\">{}</text>\n", kLeft, about);
  out += axes(frame, curve.unit) + resumes(curve, frame);
  if (!curve.training.empty()) {
    out += polyline(thinned(curve.training), frame, "raw");
    out += polyline(thinned(smooth), frame, "training");
  }
  const std::vector<LossPoint> judged = thinned(curve.validation);
  if (!judged.empty()) out += polyline(judged, frame, "valline");
  for (const auto& point : judged) {
    out += fmt::format("<circle class=\"validation\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\"/>\n",
                       frame.x(static_cast<double>(point.step)), frame.y(point.loss));
  }
  if (!curve.training.empty()) out += end_labels(curve, smooth, frame) + legend(curve);
  return out + "</svg>\n";
}

}  // namespace trireme::observe
