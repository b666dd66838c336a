#include "trireme/data/held_out.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/checksum.h"
#include "trireme/base/mix64.h"
#include "trireme/base/text.h"
#include "trireme/data/permutation.h"

namespace trireme::data {
namespace {

constexpr uint64_t kSplitKey = 0x68656c64206f7574;  // "held out"
constexpr uint64_t kRecordKey = 0x1ABE11ED;

int64_t document_size(const TokenSet& set, int64_t document) {
  return set.document_start(document + 1) - set.document_start(document);
}

void append_stretch(std::vector<TokenRange::Stretch>& stretches, int64_t first, int64_t end) {
  if (first == end) return;
  if (!stretches.empty() && stretches.back().first + stretches.back().size == first)
    stretches.back().size += end - first;
  else
    stretches.push_back({first, end - first});
}

}  // namespace

std::vector<bool> held_out_records(int64_t count, const DataSettings& s) {
  std::vector<bool> held_out(static_cast<size_t>(count));
  if (count == 0) return held_out;
  const auto wanted = static_cast<int64_t>(std::ceil(s.val_split_fraction * static_cast<double>(count)));
  const Permutation shuffled(count, kRecordKey);
  for (int64_t i = 0; i < wanted; ++i)
    held_out[static_cast<size_t>(s.val_split == Split::last ? count - 1 - i : shuffled(i))] = true;
  return held_out;
}

std::string text_of_part(const std::vector<bool>& held_out) {
  uint64_t hash = held_out.size();
  for (size_t i = 0; i < held_out.size(); ++i)
    if (held_out[i]) hash = base::mix_key(hash, i);
  return fmt::format("{} of {} (fingerprint {})", base::human_count(std::ranges::count(held_out, false)),
                     base::human_count(std::ssize(held_out)), base::checksum_text(hash));
}

std::vector<int64_t> sample_documents(const TokenSet& set, int64_t wanted) {
  const int64_t count = set.num_documents();
  std::vector<int64_t> drawn;
  if (count == 0) return drawn;
  const Permutation order(count, kSplitKey);
  const int64_t enough = wanted - wanted / 100;
  int64_t tokens = 0;
  for (int64_t i = 0; i < count && tokens < enough; ++i) {
    const int64_t document = order(i), size = document_size(set, document);
    if (size == 0 || tokens + size > wanted) continue;
    tokens += size;
    drawn.push_back(document);
  }
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

std::vector<TokenRange::Stretch> stretches_of(const TokenSet& set, const std::vector<int64_t>& documents) {
  std::vector<TokenRange::Stretch> stretches;
  for (const int64_t d : documents) append_stretch(stretches, set.document_start(d), set.document_start(d + 1));
  return stretches;
}

std::vector<TokenRange::Stretch> stretches_without(const TokenSet& set, const std::vector<int64_t>& documents) {
  std::vector<TokenRange::Stretch> stretches;
  int64_t at = 0;
  for (const int64_t d : documents) {
    append_stretch(stretches, at, set.document_start(d));
    at = set.document_start(d + 1);
  }
  append_stretch(stretches, at, set.num_tokens());
  return stretches;
}

}  // namespace trireme::data
