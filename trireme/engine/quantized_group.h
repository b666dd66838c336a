// Fills the records of a group of matrices that are kept in a few bits (model/quantized.h).
#pragma once

#include "trireme/engine/engine.h"
#include "trireme/model/quantized.h"

namespace trireme::engine {

/// Writes what this rank holds of the group's records to its master: bytes. Each whole matrix of which it holds some is
/// read and quantized; at the boundaries of ranks, by both neighbours.
void fill_quantized(const GroupState& group, const model::ReadValues& read);

/// The same with the values that Engine::initialize() gives.
void initialize_quantized(const GroupState& group, uint64_t seed);

}  // namespace trireme::engine
