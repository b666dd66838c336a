// The value of a save that tells whether training has blown up: the largest weight, or one that is not finite.
//
// Loss and gradient are of the weights before the update, so they cannot say what the update made of them; the saved
// values can. A largest value is the same however the tensors are divided among ranks.
#pragma once

#include <map>
#include <span>
#include <string>

#include "trireme/checkpoint/layout.h"
#include "trireme/checkpoint/save.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

/// The largest value of float16. No model is known whose weights do not fit it.
inline constexpr double kLargestWeight = 65504;

struct Extreme {
  double value = 0;  ///< magnitude; infinity for what is not finite
  std::string tensor;
};

/// The largest weight of the pieces that lie in memory; of what the optimizer keeps only values that are not finite
/// count. `weights` are the names of the model's tensors.
///
/// Cost      one pass over the pieces
Extreme find_extreme(std::span<const Piece> pieces, std::span<const TensorSpec> weights);

/// The largest of all ranks, on every rank. Every rank must call.
Extreme agree_on_extreme(const Extreme& mine, comm::Communicator& world);

/// Why a save with this extreme is ruined; empty when it is not.
std::string why_ruined(const Extreme& extreme);

}  // namespace trireme::checkpoint
