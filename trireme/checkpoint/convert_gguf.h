// Planning a GGUF file from a Hugging Face model.
#pragma once

#include "trireme/checkpoint/convert_sink.h"

namespace trireme::checkpoint {

/// Matrices in the dtype asked for (rows that do not divide into blocks of 32 in float16 instead of Q8_0), vectors and
/// norms in float32, as GGUF's readers expect.
ConvertPlan plan_gguf(const ConvertInput& input, const ConvertOptions& options);

}  // namespace trireme::checkpoint
