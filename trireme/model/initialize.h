// Initial weights. Element i of a parameter `name` depends on (seed, name, i) alone. So every mesh starts from the same
// model, and a rank fills only the elements that it owns.
// Source: SplitMix64 (Steele et al. 2014) as a counter-based generator; Box-Muller for each element pair (2k, 2k+1).
#pragma once

#include <cstdint>

#include "trireme/model/unit.h"

namespace trireme::model {

/// Writes elements [begin, end) (flat, row-major) of this rank's part of a parameter to `out` (float or double). Under
/// tensor parallelism (ParameterSpec::pieces) an element gets the value that it has in the whole parameter. Padding
/// gets zeros.
template <typename T>
void initialize_held(T* out, const ParameterSpec& parameter, uint64_t seed, int64_t begin, int64_t end);

}  // namespace trireme::model
