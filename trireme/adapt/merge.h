// A base model with an adapter merged, as one more checkpoint: whoever reads it gets the merged weights, whether to
// write them (merge_lora, convert) or to compute with them (generate, evaluate).
//
//   W + scale B A          DoRA: m (W + scale B A) / |W + scale B A|, the norm by output row
//
// Nothing is merged before it is read: a piece of a tensor costs the same piece of B A. An adapter of one of two tied
// matrices belongs to that one, so the merged model has both.
#pragma once

#include <string>
#include <vector>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/naming.h"

namespace trireme::adapt {

/// Refuses a base that is not the one whose fingerprint the adapter's checkpoint records, if it records one.
/// Errors    CheckpointError
void check_base(const checkpoint::Checkpoint& base, const AdapterFolder& adapter);

/// Refuses an adapter that comes with copies of the base's own tensors (FittedAdapter::base_copies) whose values are
/// not the base's: PEFT would put them in the place of the base's. Cost      reads both tensors. Errors CheckpointError
void check_copies(const checkpoint::Checkpoint& base, const AdapterFolder& adapter, const FittedAdapter& fitted,
                  const checkpoint::Naming& naming);

/// `base` with the adapter's change. Its config.json says that head and embedding are not tied if the adapter changes
/// one of them. `notes` gets a line for the user about that.
///
/// Cost      A and B of one tensor in memory at a time. DoRA reads a matrix once more for its norms. A copy of the
///           embedding in the adapter's files is compared with the base's
/// Numerics  as read_piece() for changed tensors: in fp32, or float64, rounded once
/// Errors    CheckpointError: an adapter of another base (fit()), a base that has changed since, biases for which the
///           model has no place
checkpoint::Checkpoint with_adapter(checkpoint::Checkpoint base, const AdapterFolder& adapter,
                                    std::vector<std::string>* notes = nullptr);

}  // namespace trireme::adapt
