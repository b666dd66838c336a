#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "trireme/base/text.h"
#include "trireme/bench/scaling.h"

namespace trireme::bench {
namespace {

constexpr double kWidth = 860, kLeft = 96, kRight = 210, kTop = 96, kBar = 30, kStep = 52;
constexpr double kPlotWidth = kWidth - kLeft - kRight;

// Colours of the causes in order; the first is the work itself.
constexpr std::array<std::string_view, 9> kLight = {"#1f5fd0", "#7fa6e8", "#8f6fd0", "#3f9e8f", "#c9480b",
                                                    "#e0a030", "#7a8a3a", "#b05080", "#9aa4ae"};

std::string style() {
  std::string out =
      "<style>\n"
      "text { font: 12px system-ui, -apple-system, \"Segoe UI\", Roboto, \"DejaVu Sans\", sans-serif; fill: #5b6773 }\n"
      ".paper { fill: #ffffff }\n.title { font-size: 16px; font-weight: 600; fill: #1d252c }\n"
      ".axis { stroke: #aab4be; stroke-width: 1 }\n";
  for (size_t i = 0; i < kLight.size(); ++i) out += fmt::format(".part{} {{ fill: {} }}\n", i, kLight[i]);
  return out +
         "@media (prefers-color-scheme: dark) {\ntext { fill: #9ba7b3 }\n.paper { fill: #14191e }\n"
         ".title { fill: #e7ebee }\n.axis { stroke: #55606b }\n}\n</style>\n";
}

std::string words(std::string cause) {
  std::replace(cause.begin(), cause.end(), '_', ' ');
  return base::escape_xml(cause);
}

size_t color(size_t cause) { return std::min(cause + 1, kLight.size() - 1); }

std::string rectangle(double x, double y, double width, size_t part, const std::string& title) {
  return fmt::format(
      "<rect class=\"part{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\"><title>{}</title></rect>\n",
      part, x, y, width, kBar, title);
}

// Causes that became shorter are not drawn; they are part of the remaining work.
std::string bar(const ScalingPoint& p, double y) {
  double lost = 0;
  for (const auto& [cause, share] : p.lost) lost += std::max(0.0, share);
  double x = kLeft + kPlotWidth * std::max(0.0, 1 - lost);
  std::string out = rectangle(kLeft, y, x - kLeft, 0, fmt::format("as in the first run: {:.1f} %", (1 - lost) * 100));
  for (size_t i = 0; i < p.lost.size(); ++i) {
    const double share = std::max(0.0, p.lost[i].second), width = kPlotWidth * share;
    if (share <= 0) continue;
    out += rectangle(x, y, width, color(i), fmt::format("{}: {:.1f} %", words(p.lost[i].first), share * 100));
    x += width;
  }
  out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", kLeft - 10, y + kBar / 2 + 4,
                     base::plural(p.run.ranks, "rank"));
  out += fmt::format("<text x=\"{}\" y=\"{:.1f}\">{} tokens/s, {:.1f} %</text>\n", kLeft + kPlotWidth + 12,
                     y + kBar / 2 + 4, base::human_count(static_cast<int64_t>(p.tokens_per_second)),
                     p.core_efficiency * 100);
  if (p.shared > 0)
    out += fmt::format("<text x=\"{}\" y=\"{:.1f}\">{:.0f} % of its cores are lacking</text>\n",
                       kLeft + kPlotWidth + 12, y + kBar / 2 + 19, p.shared * 100);
  return out;
}

std::string legend(const std::vector<ScalingPoint>& points, double y) {
  std::vector<std::string> names = {"as in the first run"};
  for (const auto& [cause, share] : points.front().lost) names.push_back(words(cause));
  std::string out;
  double x = kLeft;
  for (size_t i = 0; i < names.size(); ++i) {
    const double width = 32 + 6.9 * static_cast<double>(names[i].size());
    if (x + width > kWidth - 10) {
      x = kLeft;
      y += 20;
    }
    out += fmt::format(
        "<rect class=\"part{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"12\" height=\"12\"/><text x=\"{:.1f}\" "
        "y=\"{:.1f}\">{}</text>\n",
        i == 0 ? 0 : color(i - 1), x, y - 10, x + 17, y, names[i]);
    x += width;
  }
  return out;
}

}  // namespace

std::string scaling_svg(const std::string& title, const std::vector<ScalingPoint>& points) {
  const double bottom = kTop + kStep * static_cast<double>(points.size()), height = bottom + 62;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\">\n"
      "<title>{2}</title>\n",
      kWidth, height, base::escape_xml(title));
  out += style() + fmt::format("<rect class=\"paper\" width=\"{}\" height=\"{}\"/>\n", kWidth, height);
  out += fmt::format("<text class=\"title\" x=\"24\" y=\"30\">{}</text>\n", base::escape_xml(title));
  out +=
      "<text x=\"24\" y=\"50\">A step of each number of ranks, whole: the work of the first run, and what is lost by "
      "cause (rank 0).</text>\n"
      "<text x=\"24\" y=\"68\">Per cent at the right: of the first run's tokens/s times the ranks, as far as there are "
      "cores for them.</text>\n";
  for (size_t i = 0; i < points.size(); ++i) out += bar(points[i], kTop + kStep * static_cast<double>(i));
  out +=
      fmt::format("<line class=\"axis\" x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\"/>\n", kLeft, kTop - 8, bottom - 8);
  if (!points.empty()) out += legend(points, bottom + 20);
  return out + "</svg>\n";
}

}  // namespace trireme::bench
