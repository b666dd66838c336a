// Fills the records of a group of matrices that are kept in a few bits (model/quantized.h) or in panel order.
#pragma once

#include "trireme/engine/engine.h"
#include "trireme/model/quantized.h"

namespace trireme::engine {

/// Gives a whole matrix in its format.
using TakeWhole = std::function<std::shared_ptr<const ops::Quantized>(const model::ParameterSpec& parameter)>;

/// Writes what this rank holds of the group's records to its master: bytes. Each matrix of which it holds some is taken
/// whole; at the boundaries of ranks, by both neighbours.
void fill_quantized(const GroupState& group, const TakeWhole& take);

/// Gives a rank's part of a matrix.
using TakeMatrix = std::function<at::Tensor(const model::ParameterSpec& parameter)>;
/// The same for packed matrices.
void fill_packed(const GroupState& group, const TakeMatrix& take);

/// The same with the values that Engine::initialize() gives, drawn in the state dtype.
void initialize_records(const GroupState& group, uint64_t seed, at::ScalarType state);

}  // namespace trireme::engine
