#include "trireme/shard/flat_layout.h"

#include "trireme/base/error.h"

namespace trireme::shard {
namespace {
constexpr int64_t kTensorAlignment = 64;  // elements: 128 bytes of bf16, so that rows start on cache lines

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }
}  // namespace

FlatLayout::FlatLayout(std::string name, const std::vector<FlatTensorSpec>& specs) : name_(std::move(name)) {
  for (const FlatTensorSpec& spec : specs) {
    int64_t numel = 1;
    for (int64_t s : spec.shape) numel *= s;
    const int64_t offset = spec.joined ? numel_ : round_up(numel_, kTensorAlignment);
    tensors_.push_back({spec.name, spec.shape, offset, numel, spec.decay});
    numel_ = offset + numel;
  }
  numel_ = round_up(numel_, kBlockElements);
}

Range FlatLayout::owned(int rank, int size) const {
  check_invariant(size > 0 && rank >= 0 && rank < size, "0 <= rank < size");
  const int64_t blocks = num_blocks();
  return {blocks * rank / size * kBlockElements, blocks * (rank + 1) / size * kBlockElements};
}

std::vector<int64_t> FlatLayout::counts(int size) const {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(owned(r, size).size());
  return counts;
}

}  // namespace trireme::shard
