// Whether tensors are a whole model: a file that lost its last norm, or one part of a model in several, converts well
// and computes something else.
#pragma once

#include <span>
#include <string>

#include "trireme/checkpoint/tensor_source.h"
#include "trireme/model/config.h"

namespace trireme::checkpoint {

/// Every parameter of the model must be there, under Hugging Face's name and in its shape. `path` is for messages.
/// Errors    CheckpointError naming the first that is not, and how many there are
void check_model_tensors(const model::ModelConfig& config, std::span<const SourceTensor> tensors,
                         const std::string& path);

}  // namespace trireme::checkpoint
