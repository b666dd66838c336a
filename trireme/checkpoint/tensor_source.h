// How `trireme convert` sees every format of weights. A source is a list of named tensors that can be read in pieces; a
// sink takes tensors in order. Names, shapes and layouts are those of the format. The converter translates pieces of
// bounded size from one format's conventions to another's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/base/block_format.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/dtype.h"

namespace trireme::checkpoint {

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  /// In the order of the file.
  virtual const std::vector<TensorSpec>& tensors() const = 0;

  /// Reads elements [begin, end) of tensor number `tensor` into `data`, as `dtype`.
  ///
  /// Cost      reads the bytes of those elements (of the blocks they lie in); at most 1 MiB of buffers
  /// Errors    CheckpointError naming file and tensor
  virtual void read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const = 0;

  /// The format of GGUF's in which the file holds a matrix, so that read_blocks() can be called; none: as numbers, or
  /// in other blocks.
  virtual base::BlockFormat blocks_of(size_t) const { return base::BlockFormat::none; }
  /// The bytes of the blocks with elements [begin, end), unchanged (ops/blocks/gguf.h). Both are multiples of a block.
  virtual void read_blocks(size_t, int64_t, int64_t, std::byte*) const {
    throw InternalError("this source has no blocks");
  }
};

/// Its constructor gets the list of tensors, so that every offset is known before the first byte.
class TensorSink {
 public:
  virtual ~TensorSink() = default;

  /// Writes elements [begin, end) of tensor number `tensor`; `data` holds them in `dtype`. Calls must come tensor after
  /// tensor, each from its first element to its last, in pieces of whole rows.
  virtual void write(size_t tensor, int64_t begin, int64_t end, const void* data, Dtype dtype) = 0;

  /// Flushes everything to the disk. The caller then gives the folder its name.
  virtual void finish() = 0;
};

}  // namespace trireme::checkpoint
