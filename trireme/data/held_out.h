// Chooses the part of a text that is held out for validation. Of one long text, it is the last tokens. With many
// documents, the last tokens belong to documents whose paths sort last, and these often differ from the rest. So a
// random sample of whole documents is held out. It depends only on the documents' numbers and lengths. So it is the
// same on every rank of every mesh and for every data.seed: all runs share one validation text, and none trains on it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/data/settings.h"
#include "trireme/data/token_range.h"
#include "trireme/data/token_set.h"

namespace trireme::data {

inline constexpr int64_t kManyDocuments = 100;  ///< with so many, Split::automatic takes a sample

/// The documents that are held out, ascending. Together they have nearly `wanted` tokens, never more. They are drawn in
/// a pseudo-random order (permutation.h); a document that would exceed `wanted` is skipped.
///
/// Cost      O(documents), nothing is read
std::vector<int64_t> sample_documents(const TokenSet& set, int64_t wanted);

/// Which of `count` records (texts with labels, pairs) are held out, as data.val_split_fraction and data.val_split say:
/// the last ones, or a sample that is the same in every run.
std::vector<bool> held_out_records(int64_t count, const DataSettings& settings);

/// What a run's data say of it (DataIdentity): how many records are for training, and a hash of which.
std::string text_of_part(const std::vector<bool>& held_out);

/// The token ranges of `documents`, and of all other documents.
std::vector<TokenRange::Stretch> stretches_of(const TokenSet& set, const std::vector<int64_t>& documents);
std::vector<TokenRange::Stretch> stretches_without(const TokenSet& set, const std::vector<int64_t>& documents);

}  // namespace trireme::data
