// Tensors that a checkpoint has in a few bits. Whoever reads such a checkpoint sees ordinary matrices, whose values are
// those that the codes stand for; whoever can use the codes themselves takes them whole.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/checkpoint/load.h"
#include "trireme/ops/blocks/quantize.h"

namespace trireme::checkpoint {

class QuantizedTensors {
 public:
  virtual ~QuantizedTensors() = default;
  virtual bool has(const std::string& tensor) const = 0;
  /// Whether the files have codes; otherwise they have all bits.
  virtual bool is_stored() const = 0;
  /// The whole tensor. Cost      reads it, unless it is the one of the last call. Errors    CheckpointError
  virtual std::shared_ptr<const ops::Quantized> whole(const std::string& tensor) const = 0;
};

/// Shows matrices that bitsandbytes has saved in 4 bits (bitsandbytes.h) as matrices of their values, and hides their
/// statistics; likewise matrices in GGUF's blocks (gguf_blocks.h). A checkpoint without such matrices is returned as it
/// is.
/// Errors    CheckpointError naming the tensor: statistics that are missing or contradict each other, other codes or
///           sizes of blocks
Checkpoint with_stored_blocks(Checkpoint checkpoint);

/// The checkpoint as if the matrices that `chooses` names were kept in `format`.
Checkpoint in_blocks(Checkpoint checkpoint, base::BlockFormat format,
                     std::function<bool(const std::string& tensor)> chooses);

/// Refuses another dtype for the numbers of a folder whose config.json says that its weights are codes: the scales and
/// tables beside codes would no longer be those of the format. GGUF's blocks have none beside them.
/// Errors    UsageError
void refuse_dtype_beside_codes(const std::string& config_json, const std::string& path);

}  // namespace trireme::checkpoint
