// TokenRange: a stretch of a tokenized text, with what is to be learned of it and where its documents begin. What
// datasets cut samples from; the rest of the set is out of their reach (validation is another range).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trireme/data/token_set.h"

namespace trireme::data {

class TokenRange {
 public:
  /// Tokens [first, first + size) of `set`; `name` is what the ledger calls it.
  TokenRange(std::shared_ptr<const TokenSet> set, int64_t first, int64_t size, std::string name);

  int64_t size() const { return size_; }
  const std::string& name() const { return name_; }
  /// Of the set, where the range begins.
  int64_t first_token() const { return first_; }

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
  std::shared_ptr<const TokenSet> set_;
  int64_t first_, size_;
  std::string name_;
};

/// Writes -100 in the place of targets that are not to be learned: `targets[i]` is token first + 1 + i. `apart`: nor
/// are first tokens of documents, which the documents before them know nothing of. Returns how many are left.
int64_t mask_targets(const TokenRange& tokens, int64_t first, std::span<int64_t> targets, bool apart);

/// How many mask_targets would leave of `count`.
int64_t count_targets(const TokenRange& tokens, int64_t first, int64_t count, bool apart);

}  // namespace trireme::data
