#include "trireme/ops/elementwise/parabolas.h"

#include <cmath>

namespace trireme::ops {
namespace {

// Each parabola goes through three points that spread its error evenly (the roots of a Chebyshev polynomial). Pieces
// from `pieces` on are 0.
template <class F>
Parabolas fit(const F& f, int pieces) {
  Parabolas table{};
  for (int k = 0; k < pieces; ++k) {
    const double width = 1 / double{Parabolas::kPiecesPerUnit}, middle = k * width, step = width / 2 * std::sqrt(0.75);
    const double low = f(middle - step), value = f(middle), high = f(middle + step);
    const double slope = (high - low) / (2 * step), bend = (high - 2 * value + low) / (2 * step * step);
    table.constant[k] = static_cast<float>(value - middle * slope + middle * middle * bend);
    table.linear[k] = static_cast<float>(slope - 2 * middle * bend);
    table.square[k] = static_cast<float>(bend);
  }
  return table;
}

}  // namespace

const Parabolas& gelu_tail() {
  static const Parabolas table =
      fit([](double a) { return 1 / (1 + std::exp(a * (kGeluLinear + kGeluCubic * a * a))); }, Parabolas::kPieces - 1);
  return table;
}

const Parabolas& tanh_ratio() {
  static const Parabolas table = fit([](double a) { return a == 0 ? 1 : std::tanh(a) / a; }, Parabolas::kPieces);
  return table;
}

}  // namespace trireme::ops
