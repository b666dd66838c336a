// Writes models with matrices in GGUF's blocks as folders that Trireme reads (checkpoint/gguf_blocks.h). Blocks that a
// source holds in the same format are copied bit for bit; everything else is quantized.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "trireme/base/block_format.h"
#include "trireme/formats/vocabulary.h"

namespace trireme::formats {

/// Shows some matrices of a source as the bytes of their blocks.
class GgufBlockSource : public TensorSource {
 public:
  /// `source` must outlive this object.
  GgufBlockSource(const TensorSource& source, const std::set<std::string>& matrices, base::BlockFormat format);

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  /// Of matrices, bytes of whole blocks.
  /// Errors    CheckpointError naming a matrix with a value that is not finite, or too large for its scale
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;

  int64_t num_copied() const { return num_copied_; }  ///< matrices whose blocks the source holds
  int64_t num_matrices() const { return num_matrices_; }

 private:
  const TensorSource& source_;
  base::BlockFormat format_;
  std::vector<TensorSpec> tensors_;
  std::vector<bool> in_blocks_;
  int64_t num_copied_ = 0, num_matrices_ = 0;
};

/// The config.json with the `quantization_config` of such a folder.
std::string with_gguf(const std::string& config_json, base::BlockFormat format);

}  // namespace trireme::formats
