#include "trireme/checkpoint/extreme.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "trireme/checkpoint/agree.h"

namespace trireme::checkpoint {
namespace {

/// The largest bit pattern without the sign. Patterns order like magnitudes; values that are not finite come last.
template <typename Bits>
Bits largest_bits(const void* data, int64_t count) {
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max() >> 1;
  const auto* values = static_cast<const Bits*>(data);
  Bits largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max<Bits>(largest, values[i] & kMagnitude);
  return largest;
}

double largest_magnitude(const Piece& piece) {
  const int64_t count = piece.end - piece.begin;
  double value = 0;
  switch (piece.dtype) {
    case Dtype::f64:
      value = std::bit_cast<double>(largest_bits<uint64_t>(piece.data, count));
      break;
    case Dtype::f32:
      value = std::bit_cast<float>(largest_bits<uint32_t>(piece.data, count));
      break;
    case Dtype::bf16:
    case Dtype::f16: {
      const auto bits = largest_bits<uint16_t>(piece.data, count);
      convert(&bits, piece.dtype, &value, Dtype::f64, 1);
      break;
    }
    default:
      break;  // training does not change it
  }
  return std::isfinite(value) ? value : std::numeric_limits<double>::infinity();
}

}  // namespace

Extreme find_extreme(std::span<const Piece> pieces, std::span<const TensorSpec> weights) {
  std::set<std::string_view> names;
  for (const TensorSpec& weight : weights) names.insert(weight.name);
  Extreme extreme;
  const void* before = nullptr;
  for (const Piece& piece : pieces) {
    if (piece.data == nullptr || piece.data == before || piece.end <= piece.begin)
      continue;  // the same memory: a weight, then its master
    before = piece.data;
    const double value = largest_magnitude(piece);
    if (value > extreme.value && (names.contains(piece.tensor) || std::isinf(value))) extreme = {value, piece.tensor};
  }
  return extreme;
}

Extreme agree_on_extreme(const Extreme& mine, comm::Communicator& world) {
  const int64_t number[] = {std::bit_cast<int64_t>(mine.value)};
  const std::vector<int64_t> all = all_gather_numbers(world, number, std::vector<int64_t>(world.size(), 1));
  const auto largest = std::max_element(all.begin(), all.end());  // bits of positive numbers order like the numbers
  return {std::bit_cast<double>(*largest), broadcast_text(world, mine.tensor, static_cast<int>(largest - all.begin()))};
}

std::string why_ruined(const Extreme& extreme) {
  if (std::isinf(extreme.value)) return fmt::format("{} holds values that are not finite", extreme.tensor);
  if (extreme.value > kLargestWeight)
    return fmt::format("{} holds a weight of {:.3g}, beyond the {:.0f} that float16 ends at", extreme.tensor,
                       extreme.value, kLargestWeight);
  return "";
}

}  // namespace trireme::checkpoint
