#include "trireme/data/labeled_dataset.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::data {

LabeledDataset::LabeledDataset(std::vector<Row> rows, int64_t sequence, std::string name)
    : rows_(std::move(rows)), sequence_(sequence), name_(std::move(name)) {
  check_invariant(!rows_.empty(), "there is a text");
  for (const Row& row : rows_)
    check_invariant(!row.tokens.empty() && std::ssize(row.tokens) <= sequence, "a text fits into its row");
}

void LabeledDataset::sample(int64_t /*epoch*/, int64_t index, SampleView out) const {
  const Row& row = rows_[static_cast<size_t>(index)];
  const size_t count = row.tokens.size();
  std::ranges::copy(row.tokens, out.inputs.begin());
  std::ranges::fill(out.targets.first(count), kIgnoredTarget);
  std::ranges::fill(out.document_starts.first(count), 0);
  out.targets[0] = row.label;
  pad(out, count);
}

std::vector<SampleOrigin> LabeledDataset::describe(int64_t /*epoch*/, int64_t index) const {
  const Row& row = rows_[static_cast<size_t>(index)];
  return {{.source = name_,
           .first_document = row.record,
           .last_document = row.record,
           .num_tokens = std::ssize(row.tokens)}};
}

}  // namespace trireme::data
