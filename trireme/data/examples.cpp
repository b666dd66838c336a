#include "trireme/data/examples.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::data {
namespace {

// Calls visit(begin, end) for each document of the range, until it returns false.
template <typename Visit>
void for_each_document(const TokenRange& range, Visit visit) {
  if (range.size() == 0) return;
  for (int64_t d = range.document_of(0), begin = 0; begin < range.size(); ++d) {
    const int64_t end = range.document_begin(d + 1);
    if (end > begin && !visit(begin, end)) return;
    begin = end;
  }
}

}  // namespace

int64_t count_documents(const TokenRange& documents) {
  int64_t count = 0;
  for_each_document(documents, [&](int64_t, int64_t) { return ++count > 0; });
  return count;
}

std::optional<std::vector<int64_t>> prompt_of(const TokenRange& documents, int64_t index, text::Learn learn,
                                              std::span<const int32_t> opening) {
  int64_t first = -1, size = 0, seen = 0;
  for_each_document(documents, [&](int64_t begin, int64_t end) {
    if (seen++ != index) return true;
    first = begin;
    size = end - begin;
    return false;
  });
  if (first < 0)
    throw UsageError(fmt::format("eval.evaluate_example {} is not among the {} that are held out, counted from 0",
                                 index, base::plural(seen, "conversation")));
  if (learn == text::Learn::all) {
    std::vector<int64_t> ids(static_cast<size_t>(size));
    documents.copy(first, ids);
    const auto found = std::ranges::search(ids, opening);
    if (found.empty()) return std::nullopt;
    ids.erase(found.end(), ids.end());
    return ids;
  }
  std::vector<uint8_t> mask(static_cast<size_t>(size));
  documents.copy_mask(first, mask);
  auto reply = std::ranges::find(mask, uint8_t{1});
  if (learn == text::Learn::messages)  // the first stretch is the user's message
    reply = std::find(std::find(reply, mask.end(), uint8_t{0}), mask.end(), uint8_t{1});
  if (!documents.has_mask() || reply == mask.end()) return std::nullopt;
  std::vector<int64_t> ids(static_cast<size_t>(reply - mask.begin()));
  documents.copy(first, ids);
  return ids;
}

}  // namespace trireme::data
