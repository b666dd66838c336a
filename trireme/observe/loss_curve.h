// The loss curve of a run, as a picture (SVG) and as text for the terminal. Both show the smoothed training loss (the
// SVG also the raw values) and the held-out loss as points, against the step. The loss axis is logarithmic if the
// values span a factor of 2.5 or more: on a linear axis, the last half of a curve from 5.5 to 1.4 looks flat.
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
  std::vector<int64_t> resumes = {};    ///< steps of checkpoints from which the run was resumed
  std::string without_losses = "no steps logged yet";  ///< what stands there if `training` is empty
};

/// The curve of a metrics file; losses that are not finite are left out.
LossCurve loss_curve_of(const std::vector<MetricsRow>& rows, std::string title, std::string unit);

/// Joins the points by straight lines, and averages these over a window of 1/30 of the steps around each point. So
/// parts of the run with more logged steps do not count more. At the start the window shrinks on both sides, so that
/// the steep fall is not flattened. At the end only the right side shrinks, so that the curve stays smooth.
std::vector<LossPoint> smoothed(const std::vector<LossPoint>& points);

/// A complete SVG document, 860 x 440, without scripts or outside references, in the reader's light or dark colours. At
/// most about 60 KB, however long the run is.
std::string loss_curve_svg(const LossCurve& curve);

struct LossTextOptions {
  int width = 70;  ///< columns, labels included; at least 44
  int height = 12;  ///< rows of the plot itself, at least 3; axis and legend add three
  bool unicode = true;  ///< braille dots and box lines; otherwise ASCII
};

/// Lines of text, each with a newline and none wider than `width`.
std::string loss_curve_text(const LossCurve& curve, const LossTextOptions& options = {});

/// Whether the terminal shows UTF-8, according to the environment (LC_ALL, else LC_CTYPE, else LANG).
bool terminal_shows_utf8();

namespace detail {

/// An axis. place() maps values to 0 (low end) ... 1 (high end); `ticks` are the values that get a tick.
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
