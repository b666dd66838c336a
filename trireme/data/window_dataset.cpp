#include "trireme/data/window_dataset.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/data/permutation.h"

namespace trireme::data {
namespace {
constexpr uint64_t kOffsetStream = 1;  // of the seed; sampler.cpp has the other
}

WindowDataset::WindowDataset(TokenView tokens, WindowOptions options, std::string name)
    : tokens_(std::move(tokens)), options_(options), name_(std::move(name)) {
  const int64_t size = tokens_.size(), sequence = options_.sequence;
  if (options_.whole) {
    check_invariant(sequence >= 1 && size >= 2, "validation text holds at least one target");
    num_samples_ = (size - 1 + sequence - 1) / sequence;
    return;
  }
  check_invariant(sequence >= 1 && size > sequence, "a corpus holds at least one sample of one token");
  num_samples_ = std::max<int64_t>(1, (size - 1) / sequence - 1);
  num_offsets_ = std::min(sequence, size - num_samples_ * sequence);
}

int64_t WindowDataset::epoch_offset(int64_t epoch) const {
  const uint64_t random = mix_key(mix_key(options_.seed, kOffsetStream), static_cast<uint64_t>(epoch));
  return static_cast<int64_t>(random % static_cast<uint64_t>(num_offsets_));
}

int64_t WindowDataset::num_targets(int64_t start) const {
  return std::min(options_.sequence, tokens_.size() - 1 - start);
}

void WindowDataset::sample(int64_t epoch, int64_t index, SampleView out) const {
  const int64_t first = start(epoch, index);
  const auto count = static_cast<size_t>(num_targets(first));
  tokens_.copy(first, out.inputs.first(count));
  tokens_.copy(first + 1, out.targets.first(count));
  std::fill(out.inputs.begin() + static_cast<ptrdiff_t>(count), out.inputs.end(), 0);
  std::fill(out.targets.begin() + static_cast<ptrdiff_t>(count), out.targets.end(), kIgnoredTarget);
  std::fill(out.document_starts.begin(), out.document_starts.end(), 0);
}

int64_t WindowDataset::supervised_tokens(int64_t epoch, int64_t index) const {
  return num_targets(start(epoch, index));
}

std::vector<SampleOrigin> WindowDataset::describe(int64_t epoch, int64_t index) const {
  const int64_t first = start(epoch, index);
  return {{.source = name_, .first_token = first, .num_tokens = num_targets(first)}};
}

}  // namespace trireme::data
