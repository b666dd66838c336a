// FlatLayout: the position of each parameter of a group in one flat buffer, and the elements that each rank owns.
//
// Parameters are views of the unsharded buffer, gradients are views of a buffer of the same layout. A shard is a
// contiguous range of such a buffer. The layout, and so sums over it, do not depend on the number of ranks. Shard
// boundaries are multiples of 4096 elements. They may be inside a tensor, except for optimizers that need whole ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::shard {

/// Granularity of ownership and of the gradient norm's partial sums, in elements.
constexpr int64_t kBlockElements = 4096;

struct FlatTensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t offset = 0;  ///< first element in the flat buffer
  int64_t numel = 0;
  bool decay = true;   ///< weight decay applies
};

/// A range [begin, end) of elements of the flat buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// One parameter to lay out; `joined` puts it directly after the previous one, without a gap.
struct FlatTensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  bool decay = true;
  bool joined = false;
};

/// Where ranks may divide a layout: between any two blocks, or only before tensors, so that each tensor has one owner.
enum class Cut { blocks, tensors };

class FlatLayout {
 public:
  FlatLayout(std::string name, const std::vector<FlatTensorSpec>& tensors, Cut cut = Cut::blocks);

  const std::string& name() const { return name_; }
  const std::vector<FlatTensor>& tensors() const { return tensors_; }
  int64_t numel() const { return numel_; }                          ///< padded to kBlockElements
  int64_t num_blocks() const { return numel_ / kBlockElements; }

  /// The elements that rank `rank` of `size` owns: whole blocks, divided as evenly as possible; or whole tensors,
  /// divided at the tensor nearest to that. The parts of size x n ranks always divide those of size ranks.
  Range owned(int rank, int size) const;
  /// Elements owned by each rank: the counts of its collectives.
  std::vector<int64_t> counts(int size) const;

 private:
  std::string name_;
  std::vector<FlatTensor> tensors_;
  int64_t numel_ = 0;
  std::vector<int64_t> cuts_;  ///< the first blocks of tensors, and the end; empty: any block
};

}  // namespace trireme::shard
