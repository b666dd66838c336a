#include "trireme/data/dataset.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::data {

void pad(SampleView out, size_t first) {
  std::ranges::fill(out.inputs.subspan(first), 0);
  std::ranges::fill(out.targets.subspan(first), kIgnoredTarget);
  std::ranges::fill(out.document_starts.subspan(first), static_cast<int64_t>(first));
}

JoinedDataset::JoinedDataset(std::vector<std::shared_ptr<const Dataset>> parts) : parts_(std::move(parts)) {
  check_invariant(!parts_.empty(), "something is joined");
  int64_t end = 0;
  for (const auto& part : parts_) {
    check_invariant(part->sequence() == parts_.front()->sequence(), "joined datasets cut samples of one length");
    ends_.push_back(end += part->num_samples());
  }
}

JoinedDataset::Place JoinedDataset::place(int64_t index) const {
  const auto end = std::upper_bound(ends_.begin(), ends_.end(), index);
  const auto part = static_cast<size_t>(end - ends_.begin());
  return {*parts_[part], part == 0 ? index : index - ends_[part - 1]};
}

void JoinedDataset::sample(int64_t epoch, int64_t index, SampleView out) const {
  const Place at = place(index);
  at.part.sample(epoch, at.index, out);
}

int64_t JoinedDataset::supervised_tokens(int64_t epoch, int64_t index) const {
  const Place at = place(index);
  return at.part.supervised_tokens(epoch, at.index);
}

std::vector<SampleOrigin> JoinedDataset::describe(int64_t epoch, int64_t index) const {
  const Place at = place(index);
  return at.part.describe(epoch, at.index);
}

}  // namespace trireme::data
