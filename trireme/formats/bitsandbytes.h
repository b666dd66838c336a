// Writes models in 4 bits as bitsandbytes and transformers save and read them (checkpoint/bitsandbytes.h).
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "trireme/formats/vocabulary.h"
#include "trireme/ops/blocks/quantize.h"

namespace trireme::formats {

/// Shows some matrices of a source in blocks: as their codes, and the tensors beside them.
class BlockSource : public TensorSource {
 public:
  /// `source` must outlive this object.
  BlockSource(const TensorSource& source, const std::set<std::string>& matrices, base::BlockFormat format);

  const std::vector<TensorSpec>& tensors() const override { return tensors_; }
  /// Cost      reads and quantizes the whole matrix at the first of its tensors; one matrix is kept
  void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const override;

 private:
  enum class Kind { plain, codes, scales, code, nested_scales, nested_code, state };
  struct Entry {
    size_t source;
    Kind kind;
  };
  void add(size_t source, Kind kind, const std::string& suffix, std::vector<int64_t> shape, Dtype dtype);
  const ops::Quantized& whole(size_t source) const;

  const TensorSource& source_;
  base::BlockFormat format_;
  std::vector<TensorSpec> tensors_;
  std::vector<Entry> entries_;
  mutable size_t last_ = 0;
  mutable std::unique_ptr<const ops::Quantized> whole_;
};

/// The config.json with the `quantization_config` of such a model; `dtype`: what is computed with it.
std::string with_bitsandbytes(const std::string& config_json, base::BlockFormat format, const std::string& dtype);

/// The matrices that are kept in blocks, by name.
/// Errors    UsageError for models that cannot be
std::set<std::string> matrices_in_blocks(const std::string& config_json, base::BlockFormat format);

}  // namespace trireme::formats
