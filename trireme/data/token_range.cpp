#include "trireme/data/token_range.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/data/dataset.h"

namespace trireme::data {
namespace {

// Calls visit(i) for each of `count` targets that the mask excludes; target i is token first + 1 + i.
template <typename Visit>
void for_each_masked(const TokenRange& tokens, int64_t first, int64_t count, Visit visit) {
  if (!tokens.has_mask()) return;
  std::array<uint8_t, 4096> mask;
  for (int64_t at = 0; at < count; at += static_cast<int64_t>(mask.size())) {
    const auto part = std::span(mask).first(static_cast<size_t>(std::min<int64_t>(mask.size(), count - at)));
    tokens.copy_mask(first + 1 + at, part);
    for (size_t i = 0; i < part.size(); ++i)
      if (part[i] == 0) visit(static_cast<size_t>(at) + i);
  }
}

// Calls visit(token) for every document of the range that begins in tokens [begin, end).
template <typename Visit>
void for_each_beginning(const TokenRange& tokens, int64_t begin, int64_t end, Visit visit) {
  if (begin >= end) return;
  for (int64_t d = tokens.document_of(begin);; ++d) {
    const int64_t at = tokens.document_begin(d);
    if (at >= end) return;
    if (at >= begin) visit(at);
  }
}

}  // namespace

TokenRange::TokenRange(std::shared_ptr<const TokenSet> set, int64_t first, int64_t size, std::string name)
    : TokenRange(std::move(set), std::vector<Stretch>{{first, size}}, std::move(name)) {}

TokenRange::TokenRange(std::shared_ptr<const TokenSet> set, const std::vector<Stretch>& stretches, std::string name)
    : set_(std::move(set)), name_(std::move(name)) {
  check_invariant(!stretches.empty(), "a range has a stretch");
  int64_t size = 0, end_in_set = 0;
  for (const Stretch& s : stretches) {
    check_invariant(s.first >= end_in_set && s.size >= 0, "stretches ascend and do not overlap");
    if (s.size == 0 && stretches.size() > 1) continue;
    parts_.push_back({.first = s.first, .begin = size, .end = size + s.size});
    size += s.size;
    end_in_set = s.first + s.size;
  }
  check_invariant(!parts_.empty() && end_in_set <= set_->num_tokens(), "a range lies inside its set");
}

const TokenRange::Part& TokenRange::part_of(int64_t token) const {
  const auto behind = std::ranges::upper_bound(parts_, token, {}, &Part::begin);
  return *std::prev(behind);
}

template <typename Visit>
void TokenRange::for_each_stretch(int64_t first, int64_t count, Visit visit) const {
  check_invariant(first >= 0 && first + count <= size(), "tokens lie inside their range");
  for (int64_t at = first; at < first + count;) {
    const Part& part = part_of(at);
    const int64_t here = std::min(part.end, first + count) - at;
    visit(part.first + at - part.begin, at - first, here);
    at += here;
  }
}

int64_t TokenRange::token_in_set(int64_t token) const {
  const Part& part = part_of(token);
  return part.first + token - part.begin;
}

int64_t TokenRange::side_by_side(int64_t token) const { return part_of(token).end - token; }

void TokenRange::copy(int64_t first, std::span<int64_t> ids) const {
  for_each_stretch(first, std::ssize(ids), [&](int64_t in_set, int64_t offset, int64_t count) {
    set_->copy(in_set, ids.subspan(static_cast<size_t>(offset), static_cast<size_t>(count)));
  });
}

void TokenRange::copy_mask(int64_t first, std::span<uint8_t> out) const {
  for_each_stretch(first, std::ssize(out), [&](int64_t in_set, int64_t offset, int64_t count) {
    set_->copy_mask(in_set, out.subspan(static_cast<size_t>(offset), static_cast<size_t>(count)));
  });
}

int64_t TokenRange::document_of(int64_t token) const {
  // The last document that begins at the token or before it; empty ones at the same place come before it.
  const int64_t in_set = token_in_set(token);
  int64_t low = 0, high = set_->num_documents();
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (set_->document_start(middle) <= in_set ? low : high) = middle;
  }
  return low;
}

int64_t TokenRange::document_begin(int64_t d) const {
  if (d >= set_->num_documents()) return size();
  const int64_t in_set = set_->document_start(d);
  const auto behind = std::ranges::upper_bound(parts_, in_set, {}, &Part::first);
  if (behind == parts_.begin()) return 0;
  const Part& part = *std::prev(behind);
  return std::min(part.end, part.begin + in_set - part.first);
}

int64_t mask_targets(const TokenRange& tokens, int64_t first, std::span<int64_t> targets, bool apart) {
  const auto count = static_cast<int64_t>(targets.size());
  for_each_masked(tokens, first, count, [&](size_t i) { targets[i] = kIgnoredTarget; });
  if (apart)
    for_each_beginning(tokens, first + 1, first + 1 + count,
                       [&](int64_t at) { targets[static_cast<size_t>(at - first - 1)] = kIgnoredTarget; });
  return count - std::count(targets.begin(), targets.end(), kIgnoredTarget);
}

int64_t count_targets(const TokenRange& tokens, int64_t first, int64_t count, bool apart) {
  int64_t learned = count;
  for_each_masked(tokens, first, count, [&](size_t) { --learned; });
  if (!apart) return learned;
  int64_t before = -1;  // empty documents begin where the next one does
  for_each_beginning(tokens, first + 1, first + 1 + count, [&](int64_t at) {
    if (std::exchange(before, at) == at) return;
    std::array<uint8_t, 1> mask{1};
    tokens.copy_mask(at, mask);
    learned -= mask[0] != 0 ? 1 : 0;
  });
  return learned;
}

}  // namespace trireme::data
