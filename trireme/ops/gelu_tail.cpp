#include "trireme/ops/gelu_tail.h"

#include <cmath>

namespace trireme::ops {
namespace {

double tail(double a) { return 1 / (1 + std::exp(a * (kGeluLinear + kGeluCubic * a * a))); }

GeluTail make() {
  GeluTail table{};  // of the last piece, where t is 0, nothing is set
  for (int k = 0; k + 1 < GeluTail::kPieces; ++k) {
    // Through three points, those where the error of a parabola is spread evenly (the roots of a Chebyshev polynomial).
    const double width = 1 / double{GeluTail::kPiecesPerUnit}, middle = k * width, step = width / 2 * std::sqrt(0.75);
    const double low = tail(middle - step), value = tail(middle), high = tail(middle + step);
    const double slope = (high - low) / (2 * step), bend = (high - 2 * value + low) / (2 * step * step);
    table.constant[k] = static_cast<float>(value - middle * slope + middle * middle * bend);
    table.linear[k] = static_cast<float>(slope - 2 * middle * bend);
    table.square[k] = static_cast<float>(bend);
  }
  return table;
}

}  // namespace

const GeluTail& gelu_tail() {
  static const GeluTail table = make();
  return table;
}

}  // namespace trireme::ops
