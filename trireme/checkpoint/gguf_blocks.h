// Folders with matrices in GGUF's blocks (ops/blocks/gguf.h), as `trireme convert --dtype q8_0` writes them. A matrix
// [rows, columns] has its own name, and is the bytes of its blocks, row after row:
//
//   P              uint8 [rows, columns / 32 * 34]       of Q4_0, 18 bytes for each block
//   config.json    "quantization_config": {"quant_method": "gguf", "quant_type": "q8_0"}
//
// No other tensor of such a folder is a matrix of bytes. This form is Trireme's own: to transformers,
// these matrices have wrong sizes.
#pragma once

#include "trireme/checkpoint/load.h"

namespace trireme::checkpoint {

/// Shows these matrices as matrices of their values. Other checkpoints are returned as they are.
/// Errors    CheckpointError naming the tensor: rows that are no whole blocks; when it is read, scales that are not
///           finite
Checkpoint with_gguf_blocks(Checkpoint checkpoint);

}  // namespace trireme::checkpoint
