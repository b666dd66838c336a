// The copy of an adapter's base in a checkpoint (checkpoint.base copy): its files as they are, beside the adapter's.
// The run itself has no such copy: it keeps frozen weights in the compute dtype, and of whole modules only what they
// became.
#pragma once

#include <memory>
#include <string>

#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/save.h"
#include "trireme/plan/step_request.h"

namespace trireme::train {

/// Adds the base's tensors, its config.json and its index to what is saved; of its optimizer's files nothing. Each rank
/// copies some of the tensors.
/// Cost      reads and writes the base once, for each checkpoint
void add_base(checkpoint::SaveRequest& request, std::shared_ptr<const checkpoint::Checkpoint> base,
              const std::string& index_json, const plan::StepRequest& step);

}  // namespace trireme::train
