// Which part of a text is held out for validation. The last tokens are right for one long text. Of many documents they
// are those whose paths sort last, often of another kind than the rest: there a sample of whole documents is held out,
// a pure function of the documents' numbers and lengths: the same on every rank of every mesh, and whatever data.seed
// is, so that runs of several seeds are judged by one text, and none learns what another was judged by.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/data/token_range.h"
#include "trireme/data/token_set.h"

namespace trireme::data {

enum class Split {
  automatic,  ///< sample where there are kManyDocuments or more
  last,
  sample,
};

inline constexpr int64_t kManyDocuments = 100;

/// Documents that are held out, ascending, of at most `wanted` tokens together and nearly as many. Drawn one after the
/// other in a pseudo-random order (permutation.h); one that would be too much is passed over.
///
/// Cost      O(documents), nothing is read
std::vector<int64_t> sample_documents(const TokenSet& set, int64_t wanted);

/// The stretches of these documents, or of all others.
std::vector<TokenRange::Stretch> stretches_of(const TokenSet& set, const std::vector<int64_t>& documents);
std::vector<TokenRange::Stretch> stretches_without(const TokenSet& set, const std::vector<int64_t>& documents);

}  // namespace trireme::data
