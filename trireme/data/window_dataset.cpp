#include "trireme/data/window_dataset.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/mix64.h"

namespace trireme::data {
namespace {
constexpr uint64_t kOffsetStream = 1;  // of the seed; sampler.cpp has the other
}

WindowDataset::WindowDataset(TokenRange tokens, WindowOptions options) : tokens_(std::move(tokens)), options_(options) {
  const int64_t size = tokens_.size(), sequence = options_.sequence;
  if (sequence < 1)
    throw UsageError(fmt::format("windows of sequence {} hold nothing; it must be at least 1", sequence));
  if (options_.whole) {
    if (size < 2)
      throw UsageError(fmt::format("a text of size {} has no target; validation needs at least 2 tokens", size));
    num_samples_ = (size - 1 + sequence - 1) / sequence;
    return;
  }
  if (size <= sequence)
    throw UsageError(
        fmt::format("{} tokens are too few for a window of {} and its targets; pass a text of at least {} tokens, or "
                    "take shorter windows",
                    size, sequence, sequence + 1));
  num_samples_ = std::max<int64_t>(1, (size - 1) / sequence - 1);
  num_offsets_ = std::min(sequence, size - num_samples_ * sequence);
}

int64_t WindowDataset::epoch_offset(int64_t epoch) const {
  const uint64_t random = base::mix_key(base::mix_key(options_.seed, kOffsetStream), static_cast<uint64_t>(epoch));
  return static_cast<int64_t>(random % static_cast<uint64_t>(num_offsets_));
}

int64_t WindowDataset::num_targets(int64_t start) const {
  return std::min(options_.sequence, tokens_.size() - 1 - start);
}

void WindowDataset::sample(int64_t epoch, int64_t index, SampleView out) const {
  const int64_t first = start(epoch, index), count = num_targets(first);
  const auto n = static_cast<size_t>(count);
  tokens_.copy(first, out.inputs.first(n));
  tokens_.copy(first + 1, out.targets.first(n));
  mask_targets(tokens_, first, out.targets.first(n), options_.apart);
  for (int64_t d = tokens_.document_of(first), at = 0; at < count; ++d) {
    const int64_t end = std::min(count, tokens_.document_begin(d + 1) - first);
    if (end <= at) continue;
    std::ranges::fill(out.document_starts.subspan(static_cast<size_t>(at), static_cast<size_t>(end - at)), at);
    at = end;
  }
  pad(out, n);
}

int64_t WindowDataset::supervised_tokens(int64_t epoch, int64_t index) const {
  const int64_t first = start(epoch, index);
  return count_targets(tokens_, first, num_targets(first), options_.apart);
}

std::vector<SampleOrigin> WindowDataset::describe(int64_t epoch, int64_t index) const {
  const int64_t first = start(epoch, index), end = first + num_targets(first);
  std::vector<SampleOrigin> origins;
  for (int64_t at = first; at < end;) {
    const int64_t count = std::min(end - at, tokens_.side_by_side(at));
    origins.push_back({.source = tokens_.name(),
                       .first_document = tokens_.document_of(at),
                       .last_document = tokens_.document_of(at + count - 1),
                       .first_token = tokens_.token_in_set(at),
                       .num_tokens = count});
    at += count;
  }
  return origins;
}

}  // namespace trireme::data
