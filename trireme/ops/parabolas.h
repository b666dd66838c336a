// Functions of a in [0, 5] as 32 parabolas, for results that are rounded to bfloat16: two instructions look a
// coefficient up, where an exponential and a reciprocal take two or three times as long, and a hyperbolic tangent ten.
//
// GELU (tanh form): gelu(x) = max(x, 0) - a t(a), where a = |x| and t(a) = sigmoid(-z(a)), z(a) = 2 sqrt(2/pi)
// (a + 0.044715 a^3), falls from 1/2 to 0. Accurate to 1e-3 of t up to a = 3.5 and 2.5e-3 up to 4.2, where a t(a) is
// 1e-4; from 4.92 on t is 0, off by 2e-7. tests/ops/gelu_test.cpp bounds what comes of it.
// Softcap: tanh(x) = x h(|x|), h(a) = tanh(a) / a within 1e-4.
#pragma once

namespace trireme::ops {

constexpr double kGeluLinear = 1.5957691216057307117597842397375;
constexpr double kGeluCubic = 0.044715 * kGeluLinear;

struct Parabolas {
  static constexpr int kPieces = 32;
  static constexpr float kEnd = 5, kPiecesPerUnit = (kPieces - 1) / kEnd;  // piece k has its middle at k / 6.2

  alignas(64) float constant[kPieces], linear[kPieces], square[kPieces];
};

const Parabolas& gelu_tail();
const Parabolas& tanh_ratio();

}  // namespace trireme::ops
