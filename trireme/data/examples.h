// The prompts of conversations in a tokenized set: what stands before the first reply.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trireme/data/token_range.h"
#include "trireme/text/settings.h"

namespace trireme::data {

/// Documents of the range. Cost: a search for each
int64_t count_documents(const TokenRange& documents);

/// The prompt of document `index` of the range, with all markup, as the mask tells it apart: everything before the
/// first reply. `learn` is what the mask marks; if it marks all, `opening` tells: what stands before a reply. Empty if
/// nothing stands before the reply. Nothing if no reply is found: the text was cut before it, or there is no mask.
/// Errors    UsageError if there are no more than `index` documents
std::optional<std::vector<int64_t>> prompt_of(const TokenRange& documents, int64_t index, text::Learn learn,
                                              std::span<const int32_t> opening = {});

}  // namespace trireme::data
