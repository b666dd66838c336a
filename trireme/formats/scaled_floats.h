// 8-bit floats with scales: a matrix "NAME" of F8_E4M3 or F8_E5M2 whose values are multiplied by those of another
// tensor, "NAME_scale_inv" (a scale for each block of rows and columns: DeepSeek, Qwen3, transformers' fp8) or
// "NAME_scale" (one for the whole matrix or for each row: compressed-tensors). They are read as bfloat16.
#pragma once

#include <optional>
#include <string>

#include "trireme/formats/vocabulary.h"

namespace trireme::formats {

/// The value of an 8-bit float. F8_E4M3 has no infinity: 0x7f and 0xff are NaN.
float read_f8(uint8_t bits, Dtype dtype);

/// Which values of another tensor scale a matrix.
struct FloatScaling {
  size_t scales = 0;  ///< tensor of the source
  int64_t rows = 1, columns = 1;  ///< of a block
  int64_t blocks_in_row = 1;
};

/// Shows a source's matrices with their scales applied, and leaves out the scales (and those of inputs).
class ScaledFloatSource : public TensorSource {
 public:
  /// `config_json` may say the blocks' size (quantization_config.weight_block_size, otherwise 128 x 128). `source` must
  /// outlive this object.
  /// Errors    CheckpointError naming a matrix whose scales have another shape
  ScaledFloatSource(const TensorSource& source, const std::string& config_json, const std::string& path);

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  /// Cost      reads the scales of the rows, and one buffer as large as the piece
  /// Numerics  value times scale in float32, rounded once to `dtype`
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;
  int64_t num_scaled() const { return num_scaled_; }

 private:
  void resolve(const TensorSpec& matrix, size_t scales, bool blocks, const std::string& path,
               FloatScaling& scaling) const;

  const TensorSource& source_;
  std::vector<TensorSpec> tensors_;
  std::vector<size_t> of_;  ///< the source's tensor for each tensor
  std::vector<std::optional<FloatScaling>> scaling_;
  int64_t block_rows_ = 128, block_columns_ = 128, num_scaled_ = 0;
};

/// A source of matrices with scales: whether any 8-bit float has them.
bool has_scaled_floats(const TensorSource& source);

/// The config.json without its `quantization_config`: that of the values which ScaledFloatSource shows.
std::string without_quantization(const std::string& config_json);

}  // namespace trireme::formats
