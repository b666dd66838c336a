#include "trireme/data/preference_dataset.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "trireme/base/error.h"

namespace trireme::data {
namespace {

// Best-fit decreasing, as PackedDataset.
std::vector<std::vector<int64_t>> rows_of(std::span<const TokenPair> pairs, int64_t sequence, bool share_rows) {
  std::vector<int64_t> order(pairs.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto places = [&](int64_t i) { return pairs[static_cast<size_t>(i)].places(); };
  if (share_rows) std::ranges::stable_sort(order, [&](int64_t a, int64_t b) { return places(a) > places(b); });
  std::vector<std::vector<int64_t>> rows;
  std::multimap<int64_t, size_t> rooms;  // rows by the places that are left
  for (const int64_t pair : order) {
    const auto best = rooms.lower_bound(places(pair));
    size_t row = rows.size();
    int64_t room = sequence;
    if (share_rows && best != rooms.end()) {
      room = best->first;
      row = best->second;
      rooms.erase(best);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(pair);
    rooms.emplace(room - places(pair), row);
  }
  return rows;
}

// Writes a text as a document from place `at` on; returns the place behind it.
size_t write(const ReplyText& text, bool learns_prompt, size_t at, const SampleView& out) {
  const auto count = static_cast<size_t>(text.places());
  for (size_t i = 0; i < count; ++i) {
    const bool is_learned = learns_prompt || static_cast<int64_t>(i) + 1 >= text.prompt_tokens;
    out.inputs[at + i] = text.tokens[i];
    out.targets[at + i] = is_learned ? text.tokens[i + 1] : kIgnoredTarget;
    out.document_starts[at + i] = static_cast<int64_t>(at);
  }
  return at + count;
}

}  // namespace

PreferenceDataset::PreferenceDataset(std::vector<TokenPair> pairs, int64_t sequence, bool share_rows,
                                     bool learns_prompts, std::string name)
    : pairs_(std::move(pairs)),
      rows_(rows_of(pairs_, sequence, share_rows)),
      sequence_(sequence),
      learns_prompts_(learns_prompts),
      name_(std::move(name)) {
  check_invariant(!pairs_.empty(), "there is a pair");
  for (const TokenPair& pair : pairs_)
    check_invariant(pair.chosen.reply_targets() > 0 && pair.rejected.reply_targets() > 0 && pair.places() <= sequence,
                    "a pair has replies, and fits into its row");
}

void PreferenceDataset::sample(int64_t /*epoch*/, int64_t index, SampleView out) const {
  size_t at = 0;
  for (const int64_t number : row(index)) {
    const TokenPair& pair = pairs_[static_cast<size_t>(number)];
    at = write(pair.chosen, learns_prompts_, at, out);
    at = write(pair.rejected, false, at, out);
  }
  pad(out, at);
}

std::vector<SampleOrigin> PreferenceDataset::describe(int64_t /*epoch*/, int64_t index) const {
  std::vector<SampleOrigin> origins;
  for (const int64_t number : row(index)) {
    const TokenPair& pair = pairs_[static_cast<size_t>(number)];
    origins.push_back(
        {.source = name_, .first_document = pair.record, .last_document = pair.record, .num_tokens = pair.places()});
  }
  return origins;
}

}  // namespace trireme::data
