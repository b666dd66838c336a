// WordLevel: each piece is one token, or the unknown token.
#pragma once

#include "trireme/text/token_model.h"

namespace trireme::text {

class WordLevel final : public TokenModel {
 public:
  /// `unknown` need not be in the vocabulary: then every piece must be.
  WordLevel(Vocabulary vocabulary, const std::string& unknown);

  /// Errors    UsageError naming the piece, if neither it nor the unknown token is in the vocabulary
  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  std::optional<int32_t> unknown_;
};

}  // namespace trireme::text
