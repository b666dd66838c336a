#include "trireme/shard/flat_layout.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/round_up.h"

namespace trireme::shard {
namespace {
constexpr int64_t kTensorAlignment = 64;  // elements: 128 bytes of bf16, so that rows start on cache lines
}  // namespace

FlatLayout::FlatLayout(std::string name, const std::vector<FlatTensorSpec>& specs, Cut cut) : name_(std::move(name)) {
  const bool whole = cut == Cut::tensors;
  for (const FlatTensorSpec& spec : specs) {
    int64_t numel = 1;
    for (int64_t s : spec.shape) numel *= s;
    // Of whole tensors, only matrices begin a block: vectors stay with the matrix before them.
    const bool begins = whole && !spec.joined && (spec.shape.size() > 1 || tensors_.empty());
    const int64_t offset = spec.joined ? numel_ : base::round_up(numel_, begins ? kBlockElements : kTensorAlignment);
    if (begins) cuts_.push_back(offset / kBlockElements);
    tensors_.push_back({spec.name, spec.shape, offset, numel, spec.decay});
    numel_ = offset + numel;
  }
  numel_ = base::round_up(numel_, kBlockElements);
  if (whole) cuts_.push_back(num_blocks());
}

Range FlatLayout::owned(int rank, int size) const {
  check_invariant(size > 0 && rank >= 0 && rank < size, "0 <= rank < size");
  const auto boundary = [&](int64_t before) {
    const int64_t block = num_blocks() * before / size;
    if (cuts_.empty() || before == 0 || before == size) return block;
    const auto after = std::lower_bound(cuts_.begin(), cuts_.end(), block);
    if (after == cuts_.begin() || after == cuts_.end()) return block;
    return *after - block < block - *(after - 1) ? *after : *(after - 1);
  };
  return {boundary(rank) * kBlockElements, boundary(rank + 1) * kBlockElements};
}

std::vector<int64_t> FlatLayout::counts(int size) const {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(owned(r, size).size());
  return counts;
}

}  // namespace trireme::shard
