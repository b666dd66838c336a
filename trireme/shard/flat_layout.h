// FlatLayout: where each parameter of a group lies in one flat buffer, and which rank owns which elements.
//
// Parameters are views into the unsharded buffer, gradients views into a buffer of the same layout; a shard is a
// contiguous range of it. The layout does not depend on the number of ranks (so neither do sums over it), and
// shard boundaries fall on multiples of 4096 elements, inside a tensor where need be.
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

/// One parameter to lay out; `joined` puts it right behind the one before, without a gap.
struct FlatTensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  bool decay = true;
  bool joined = false;
};

class FlatLayout {
 public:
  FlatLayout(std::string name, const std::vector<FlatTensorSpec>& tensors);

  const std::string& name() const { return name_; }
  const std::vector<FlatTensor>& tensors() const { return tensors_; }
  int64_t numel() const { return numel_; }                          ///< padded to kBlockElements
  int64_t num_blocks() const { return numel_ / kBlockElements; }

  /// The elements that rank `rank` of `size` owns: whole blocks, dealt as evenly as they divide.
  Range owned(int rank, int size) const;
  /// Elements owned by each rank: the counts of its collectives.
  std::vector<int64_t> counts(int size) const;

 private:
  std::string name_;
  std::vector<FlatTensor> tensors_;
  int64_t numel_ = 0;
};

}  // namespace trireme::shard
