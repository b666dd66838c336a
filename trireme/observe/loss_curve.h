// The loss curve of a run, as a picture (SVG) and as text for the terminal. Both show the same: training
// loss smoothed (the SVG shows the raw values behind it) and the held-out loss as points, against the step;
// the loss axis is logarithmic where the values span a factor of 2.5 or more, since a curve that falls
// from 5.5 to 1.4 shows nothing of its last half on a linear one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/observe/metrics.h"

namespace trireme::observe {

struct LossPoint {
  int64_t step = 0;
  double loss = 0;
};

struct LossCurve {
  std::string title;                    ///< "austen: llama, 4.95 M parameters"
  std::string unit = "nats per token";  ///< of the loss
  std::vector<LossPoint> training;      ///< ascending steps, finite losses
  std::vector<LossPoint> validation;
  std::vector<int64_t> resumes = {};  ///< steps of checkpoints that the run went on from
};

/// The curve of a metrics file; losses that are not finite are left out.
LossCurve loss_curve_of(const std::vector<MetricsRow>& rows, std::string title, std::string unit);

/// Mean over a window of 1/30 of the steps, centred on each point, of the line through the points: a part that was
/// logged more often counts for no more than its steps. At the start the window shrinks on both sides, so that the
/// steep fall is not flattened; at the end only the side that has no points does, so that it stays calm.
std::vector<LossPoint> smoothed(const std::vector<LossPoint>& points);

/// A complete SVG document, 860 x 440, without scripts or outside references; follows the reader's light or
/// dark colours. At most about 60 KB however long the run.
std::string loss_curve_svg(const LossCurve& curve);

struct LossTextOptions {
  int width = 70;       ///< columns, labels included; at least 44
  int height = 12;      ///< rows of the plot itself, at least 3; axis and legend add three
  bool unicode = true;  ///< braille dots and box lines; otherwise ASCII
};

/// Lines of text, each ended by a newline and none wider than `width`.
std::string loss_curve_text(const LossCurve& curve, const LossTextOptions& options = {});

/// Whether the environment says that the terminal shows UTF-8 (LC_ALL, else LC_CTYPE, else LANG).
bool terminal_shows_utf8();

namespace detail {

/// A value axis: where values lie between 0 (low end) and 1 (high end), and which ones get a tick.
struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;
  std::vector<double> ticks;

  double place(double value) const;
  std::string label(double tick) const;
};

Axis loss_axis(const LossCurve& curve, int most_ticks);
Axis step_axis(const LossCurve& curve, int most_ticks);

}  // namespace detail
}  // namespace trireme::observe
