// Matrices of blocks that are kept in a few bits (ops/blocks): which ones, and how ranks divide them.
//
// All matrices of decoder blocks are, as in transformers; norms and biases are not. Such a matrix is frozen: adapters
// learn beside it. The head's matrix, which is the embedding's if both are one, may be in models that are not trained.
#pragma once

#include <functional>
#include <vector>

#include "trireme/model/adapters.h"
#include "trireme/model/config.h"
#include "trireme/model/unit.h"

namespace trireme::model {

/// Refuses what matrices in a few bits cannot be used for. Errors    UsageError: one sentence, with the way out
void check_quantized(const ModelConfig& config, const Precision& precision, const Adapters& adapters);

/// Keeps the matrices of all blocks in this format. `folder` is for messages.
/// Errors    UsageError if they lie in another one already
void quantize(ModelConfig& config, base::BlockFormat format, const std::string& folder);

/// Keeps a matrix [out, in] in this format, as it is divided; does nothing for none. `setting` asks for it.
/// Errors    UsageError if the division would cut a byte, or a block of GGUF's formats
void quantize(ParameterSpec& matrix, base::BlockFormat format, const std::string& setting);

/// Reads elements [begin, end) of a whole parameter.
using ReadValues = std::function<void(const ParameterSpec& parameter, int64_t begin, int64_t end, float* to)>;

/// A whole matrix, which is read in pieces.
///
/// Cost      a pass over it, 4 MiB of it at a time; keeps its codes, and 4 bytes for each block's scale
/// Errors    CheckpointError naming the parameter if a value is not finite, or too large for its scale
ops::Quantized quantize_values(const ParameterSpec& parameter, const ReadValues& read);

/// This rank's record of a parameter, out of the whole matrix.
/// Errors    CheckpointError if the matrix is in another format
std::vector<uint8_t> quantized_record(const ParameterSpec& parameter, const ops::Quantized& whole);

}  // namespace trireme::model
