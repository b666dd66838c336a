#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "trireme/observe/loss_curve.h"

namespace trireme::observe {
namespace {
// A grid of character cells, each of `dots_x` x `dots_y` dots: 2 x 4 in a braille cell, 1 x 1 in ASCII.
class Canvas {
 public:
  Canvas(int columns, int rows, bool unicode)
      : columns_(columns),
        rows_(rows),
        unicode_(unicode),
        cells_(static_cast<size_t>(columns * rows)),
        marks_(static_cast<size_t>(columns * rows)) {}

  int dots_x() const { return columns_ * (unicode_ ? 2 : 1); }
  int dots_y() const { return rows_ * (unicode_ ? 4 : 1); }

  void dot(int x, int y) {
    // Unicode numbers the dots of a cell by columns, but the lowest row last (block U+2800).
    static constexpr unsigned char kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (unicode_)
      cells_[cell(x / 2, y / 4)] |= kBits[y % 4][x % 2];
    else
      cells_[cell(x, y)] = 1;
  }
  void mark(int column, int row) { marks_[cell(column, row)] = true; }

  std::string row(int row) const {
    std::string out;
    for (int column = 0; column < columns_; ++column) {
      const unsigned char dots = cells_[cell(column, row)];
      if (marks_[cell(column, row)]) {
        out += unicode_ ? "●" : "o";
      } else if (dots == 0) {
        out += ' ';
      } else if (unicode_) {
        const unsigned code = 0x2800u + dots;
        out += {static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
                static_cast<char>(0x80 | (code & 0x3F))};
      } else {
        out += '*';
      }
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return out;
  }

 private:
  size_t cell(int column, int row) const { return static_cast<size_t>(row * columns_ + column); }

  int columns_, rows_;
  bool unicode_;
  std::vector<unsigned char> cells_;
  std::vector<bool> marks_;
};

int place(const detail::Axis& axis, double value, int cells) {
  return std::clamp(static_cast<int>(std::lround(axis.place(value) * (cells - 1))), 0, cells - 1);
}

void draw_line(Canvas& canvas, const std::vector<LossPoint>& points, const detail::Axis& steps,
               const detail::Axis& losses) {
  std::optional<std::pair<int, int>> before;
  for (const auto& point : points) {
    const int x = place(steps, static_cast<double>(point.step), canvas.dots_x());
    const int y = canvas.dots_y() - 1 - place(losses, point.loss, canvas.dots_y());
    const auto [from_x, from_y] = before.value_or(std::pair{x, y});
    const int length = std::max({std::abs(x - from_x), std::abs(y - from_y), 1});
    for (int i = 0; i <= length; ++i)
      canvas.dot(static_cast<int>(std::lround(from_x + (x - from_x) * static_cast<double>(i) / length)),
                 static_cast<int>(std::lround(from_y + (y - from_y) * static_cast<double>(i) / length)));
    before = {x, y};
  }
}

// The step labels, each centred under its place where there is room.
std::string step_labels(const detail::Axis& steps, int columns) {
  std::string line(static_cast<size_t>(columns), ' ');
  int free_from = 0;
  for (const double tick : steps.ticks) {
    const std::string label = steps.label(tick);
    const int size = static_cast<int>(label.size());
    const int at = std::clamp(place(steps, tick, columns) - size / 2, 0, std::max(0, columns - size));
    if (at < free_from || at + size > columns) continue;
    line.replace(static_cast<size_t>(at), label.size(), label);
    free_from = at + size + 2;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// The axis of steps, with a mark at each step from which the run was resumed.
std::string floor_of(const LossCurve& curve, const detail::Axis& steps, int columns, bool unicode) {
  std::vector<bool> marks(static_cast<size_t>(columns));
  for (const int64_t step : curve.resumes)
    marks[static_cast<size_t>(place(steps, static_cast<double>(step), columns))] = true;
  std::string out;
  for (const bool mark : marks) out += mark ? (unicode ? "▲" : "^") : (unicode ? "─" : "-");
  return out;
}
}  // namespace

std::string loss_curve_text(const LossCurve& curve, const LossTextOptions& options) {
  if (curve.training.empty() && curve.validation.empty()) return curve.without_losses + "\n";
  const bool unicode = options.unicode;
  const int height = std::max(3, options.height);
  const auto losses = detail::loss_axis(curve, std::max(2, height / 2));
  std::vector<std::string> labels(static_cast<size_t>(height));
  size_t margin = 0;
  for (const double tick : losses.ticks) {
    auto& label = labels[static_cast<size_t>(height - 1 - place(losses, tick, height))];
    label = losses.label(tick);
    margin = std::max(margin, label.size());
  }
  constexpr std::string_view kAxisName = " steps";
  const int columns = std::max(44, options.width) - static_cast<int>(margin + 2 + kAxisName.size());
  const auto steps = detail::step_axis(curve, std::max(2, columns / 10));

  Canvas canvas(columns, height, unicode);
  const std::vector<LossPoint> smooth = smoothed(curve.training);
  draw_line(canvas, smooth, steps, losses);
  for (const auto& point : curve.validation)
    canvas.mark(place(steps, static_cast<double>(point.step), columns), height - 1 - place(losses, point.loss, height));

  const std::string indent(margin + 1, ' ');
  std::string out = fmt::format("{}loss, {}{}\n", indent, curve.unit, losses.logarithmic ? ", log scale" : "");
  for (int row = 0; row < height; ++row) {
    const auto& label = labels[static_cast<size_t>(row)];
    const char* rule = unicode ? (label.empty() ? "│" : "┤") : (label.empty() ? "|" : "+");
    out += fmt::format("{:>{}} {}{}\n", label, margin, rule, canvas.row(row));
  }
  out += indent + (unicode ? "└" : "+") + floor_of(curve, steps, columns, unicode);
  out.append(kAxisName).append("\n");
  out += indent + " " + step_labels(steps, columns) + "\n" + indent;
  if (!smooth.empty()) out += fmt::format(" {} training {:.3f}", unicode ? "⠒⠒" : "**", smooth.back().loss);
  if (!curve.validation.empty())
    out += fmt::format("  {} held out {:.3f}", unicode ? "●" : "o", curve.validation.back().loss);
  if (!curve.resumes.empty()) out += fmt::format("  {} resumed", unicode ? "▲" : "^");
  return out + "\n";
}

}  // namespace trireme::observe
