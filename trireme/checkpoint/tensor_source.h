// What every format of weights looks like to `trireme convert`: a list of named tensors that can be read in pieces,
// and one that takes them in order. Names, shapes and layouts are the format's own; converting between the
// conventions of formats is the converter's work, on pieces of bounded size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/dtype.h"

namespace trireme::checkpoint {

/// A tensor as a file names and shapes it, row-major.
struct SourceTensor {
  std::string name;
  std::vector<int64_t> shape;
  Dtype dtype = Dtype::f32;  ///< of the values; those of quantised blocks are f32
};

/// The dtype in which a tensor is written where `wanted` was asked for: what is no float stays as it is.
/// Errors    UsageError for 8-bit floats, which nothing else can take the place of
Dtype dtype_for(const SourceTensor& tensor, std::optional<Dtype> wanted);

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  /// In the order in which they lie in the file.
  virtual const std::vector<SourceTensor>& tensors() const = 0;

  /// Elements [begin, end) of tensor number `tensor`, in `dtype`, to `data`.
  ///
  /// Cost      reads the bytes of those elements (of the blocks they lie in); at most 1 MiB of buffers
  /// Errors    CheckpointError naming file and tensor
  virtual void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const = 0;
};

/// Made with the list of its tensors, so that every offset is known before the first byte.
class TensorSink {
 public:
  virtual ~TensorSink() = default;

  /// Elements [begin, end) of tensor number `tensor`, from `data` in `dtype`. Calls come in order: tensor after tensor,
  /// each from its first element to its last in pieces that begin and end at whole rows.
  virtual void write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) = 0;

  /// Flushes everything to the disk. Whoever made the folder gives it its name afterwards.
  virtual void finish() = 0;
};

}  // namespace trireme::checkpoint
