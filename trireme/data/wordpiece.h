// WordPiece, BERT's model: the longest token that a word begins with, then the longest "##..." that goes on from there.
#pragma once

#include "trireme/data/token_model.h"
#include "trireme/data/vocabulary.h"

namespace trireme::data {

struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string prefix = "##";
  int64_t longest_word = 100;  ///< characters; longer words are unknown
};

class WordPiece final : public TokenModel {
 public:
  /// Errors    UsageError when the vocabulary lacks the unknown token
  WordPiece(Vocabulary vocabulary, WordPieceOptions options);

  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override;
  std::string_view token(int32_t id) const override { return vocabulary_.token(id); }
  std::optional<int32_t> id_of(std::string_view token) const override { return vocabulary_.find(token); }
  int64_t vocab_size() const override { return vocabulary_.size(); }

 private:
  Vocabulary vocabulary_;
  WordPieceOptions options_;
  int32_t unknown_ = 0;
  size_t longest_token_ = 0;
};

}  // namespace trireme::data
