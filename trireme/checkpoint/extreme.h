// Extreme: the value in a save that shows whether training has diverged: the largest weight, or a non-finite value.
//
// A step's loss and gradient belong to the weights before its update. Only the saved values show what the update did.
// The result does not depend on how the tensors are divided among ranks.
#pragma once

#include <map>
#include <span>
#include <string>

#include "trireme/checkpoint/layout.h"
#include "trireme/checkpoint/save.h"
#include "trireme/comm/communicator.h"

namespace trireme::checkpoint {

/// The largest value of float16. The weights of all known models are smaller.
inline constexpr double kLargestWeight = 65504;

struct Extreme {
  double value = 0;  ///< magnitude; infinity if not finite
  std::string tensor;
};

/// The largest weight among the pieces that are in memory. In the optimizer's state only non-finite values count.
/// `weights` are the model's tensors.
///
/// Cost      one pass over the pieces
Extreme find_extreme(std::span<const Piece> pieces, std::span<const TensorSpec> weights);

/// The extreme over all ranks, on every rank. Every rank must call.
Extreme agree_on_extreme(const Extreme& mine, comm::Communicator& world);

/// Why a save with this extreme is ruined (good.h); empty if it is not.
std::string why_ruined(const Extreme& extreme);

}  // namespace trireme::checkpoint
