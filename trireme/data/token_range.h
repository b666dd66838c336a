// A TokenRange is a part of a TokenSet, with its mask and the beginnings of its documents. It is one range of tokens,
// or whole documents from different places, joined as one text. Datasets cut samples from a TokenRange and do not see
// the rest of the set (such as the validation range). Documents keep their numbers in the set; a document outside the
// range is empty.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/token_set.h"

namespace trireme::data {

class TokenRange {
 public:
  /// Tokens [first, first + size) of `set`; `name` is what the ledger calls it.
  TokenRange(std::shared_ptr<const TokenSet> set, int64_t first, int64_t size, std::string name);

  /// Neighbouring tokens of the set. The stretches of a range ascend and do not overlap.
  struct Stretch {
    int64_t first = 0, size = 0;
    bool operator==(const Stretch&) const = default;
  };
  TokenRange(std::shared_ptr<const TokenSet> set, const std::vector<Stretch>& stretches, std::string name);

  int64_t size() const { return parts_.back().end; }
  const std::string& name() const { return name_; }
  /// The place in the set of a token of the range.
  int64_t token_in_set(int64_t token) const;
  /// How many tokens, from `token` on, are neighbours in the set too.
  int64_t side_by_side(int64_t token) const;

  /// Tokens [first, first + ids.size()) of the range.
  void copy(int64_t first, std::span<int64_t> ids) const;

  bool has_mask() const { return set_->has_mask(); }
  /// 1 for each token that is to be learned.
  void copy_mask(int64_t first, std::span<uint8_t> out) const;

  /// The document that holds the token, by its number in the set.
  int64_t document_of(int64_t token) const;
  /// Where document `d` of the set begins in the range; the range's begin or end if it lies before or after the range.
  int64_t document_begin(int64_t d) const;

 private:
  struct Part {
    int64_t first;  // place in the set
    int64_t begin, end;  // places in the range
  };
  const Part& part_of(int64_t token) const;
  // Calls visit(place in the set, offset, count) for each stretch of tokens [first, first + count).
  template <typename Visit>
  void for_each_stretch(int64_t first, int64_t count, Visit visit) const;

  std::shared_ptr<const TokenSet> set_;
  std::vector<Part> parts_;  // at least one
  std::string name_;
};

/// Writes kIgnoredTarget over targets that are not to be learned; `targets[i]` is token first + 1 + i. With `apart`,
/// the first tokens of documents are not learned either, because the document before says nothing about them. Returns
/// the number of targets that are left.
int64_t mask_targets(const TokenRange& tokens, int64_t first, std::span<int64_t> targets, bool apart);

/// The number of targets that mask_targets would leave, of `count` targets.
int64_t count_targets(const TokenRange& tokens, int64_t first, int64_t count, bool apart);

}  // namespace trireme::data
