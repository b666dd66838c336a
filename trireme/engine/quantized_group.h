// Fills the records of a group of matrices that are kept in a few bits (model/quantized.h).
#pragma once

#include "trireme/engine/engine.h"
#include "trireme/model/quantized.h"

namespace trireme::engine {

/// Gives a whole matrix in its format.
using TakeWhole = std::function<std::shared_ptr<const ops::Quantized>(const model::ParameterSpec& parameter)>;

/// Writes what this rank holds of the group's records to its master: bytes. Each matrix of which it holds some is taken
/// whole; at the boundaries of ranks, by both neighbours.
void fill_quantized(const GroupState& group, const TakeWhole& take);

/// The same with the values that Engine::initialize() gives.
void initialize_quantized(const GroupState& group, uint64_t seed);

}  // namespace trireme::engine
