// Functions of a in [0, 5] as 32 parabolas, for results that are rounded to bfloat16. Two instructions look up a
// coefficient. An exponential and a reciprocal would take two or three times as long, a hyperbolic tangent ten times.
//
// GELU (tanh form): gelu(x) = max(x, 0) - a t(a), where a = |x|, t(a) = sigmoid(-z(a)) and z(a) = 2 sqrt(2/pi)
// (a+0.044715 a^3). t falls from 1/2 to 0. The relative error of t is 1e-3 up to a = 3.5, and 2.5e-3 up to 4.2, where a
// t(a) is 1e-4. From 4.92 on the parabola is 0, off by 2e-7. tests/ops/gelu_test.cpp bounds the resulting error.
// Softcap: tanh(x) = x h(|x|), where h(a) = tanh(a) / a has an error of at most 1e-4.
#pragma once

namespace trireme::ops {

constexpr double kGeluLinear = 1.5957691216057307117597842397375;
constexpr double kGeluCubic = 0.044715 * kGeluLinear;

struct Parabolas {
  static constexpr int kPieces = 32;
  static constexpr float kEnd = 5, kPiecesPerUnit = (kPieces - 1) / kEnd;  // piece k has its middle at k / 6.2

  alignas(64) float constant[kPieces], linear[kPieces], square[kPieces];
};

const Parabolas& gelu_tail();  ///< t
const Parabolas& tanh_ratio();  ///< h

}  // namespace trireme::ops
