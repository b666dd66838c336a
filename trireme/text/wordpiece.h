// WordPiece, BERT's model: takes the longest token that a word begins with, then again and again the longest "##..."
// token.
#pragma once

#include "trireme/text/token_model.h"

namespace trireme::text {

struct WordPieceOptions {
  std::string unknown = "[UNK]";
  std::string prefix = "##";
  int64_t longest_word = 100;  ///< characters; longer words are unknown
};

class WordPiece final : public TokenModel {
 public:
  /// Errors    UsageError if the vocabulary lacks the unknown token
  WordPiece(Vocabulary vocabulary, WordPieceOptions options);

  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  WordPieceOptions options_;
  int32_t unknown_ = 0;
  size_t longest_token_ = 0;
};

}  // namespace trireme::text
