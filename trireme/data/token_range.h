// TokenRange: a part of a tokenized text, with what is to be learned of it and where its documents begin: one stretch,
// or whole documents here and there, which then follow each other as one text. What datasets cut samples from; the rest
// of the set is out of their reach (validation is another range). Documents keep the set's numbers; one that lies
// outside the range is empty.
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

  /// Stretches of the set, ascending and apart.
  struct Stretch {
    int64_t first = 0, size = 0;
    bool operator==(const Stretch&) const = default;
  };
  TokenRange(std::shared_ptr<const TokenSet> set, const std::vector<Stretch>& stretches, std::string name);

  int64_t size() const { return parts_.back().end; }
  const std::string& name() const { return name_; }
  /// Of the set: where a token of the range lies.
  int64_t token_in_set(int64_t token) const;
  /// Tokens from `token` on that lie side by side in the set.
  int64_t side_by_side(int64_t token) const;

  /// Tokens [first, first + ids.size()) of the range.
  void copy(int64_t first, std::span<int64_t> ids) const;

  bool has_mask() const { return set_->has_mask(); }
  /// 1 for each token that is to be learned.
  void copy_mask(int64_t first, std::span<uint8_t> out) const;

  /// Number in the set of the document that holds the token.
  int64_t document_of(int64_t token) const;
  /// Where document `d` of the set begins; before the range and behind it the range's own ends.
  int64_t document_begin(int64_t d) const;

 private:
  struct Part {
    int64_t first;  // of the set
    int64_t begin, end;  // of the range
  };
  const Part& part_of(int64_t token) const;
  // Calls visit(place in the set, offset, count) for each stretch of tokens [first, first + count).
  template <typename Visit>
  void for_each_stretch(int64_t first, int64_t count, Visit visit) const;

  std::shared_ptr<const TokenSet> set_;
  std::vector<Part> parts_;  // at least one
  std::string name_;
};

/// Writes -100 in the place of targets that are not to be learned: `targets[i]` is token first + 1 + i. `apart`: nor
/// are first tokens of documents, which the documents before them know nothing of. Returns how many are left.
int64_t mask_targets(const TokenRange& tokens, int64_t first, std::span<int64_t> targets, bool apart);

/// How many mask_targets would leave of `count`.
int64_t count_targets(const TokenRange& tokens, int64_t first, int64_t count, bool apart);

}  // namespace trireme::data
