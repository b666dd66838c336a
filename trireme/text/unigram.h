// The Unigram model. Of all ways to cut a piece into tokens, it takes the one with the largest sum of log-probabilities
// (Viterbi). Of equal sums, the cut whose last token begins first wins. It compares rounded sums, so ties end as in
// sentencepiece 0.2.3 (EncodeOptimized) and tokenizers. Source: Kudo, Subword Regularization (2018).
#pragma once

#include <string>
#include <vector>

#include "trireme/text/byte_trie.h"
#include "trireme/text/token_model.h"

namespace trireme::text {

struct UnigramOptions {
  std::optional<int32_t> unknown;
  bool byte_fallback = false;
  bool single_precision = false;  ///< sums in float, as in sentencepiece; tokenizers sums in double
  /// By id: may text become this token? Control and byte tokens of SentencePiece files may not. Empty: all may.
  std::vector<bool> matchable;
  /// By id: user-defined tokens. They win wherever they occur: they get a small score above 0. Empty: none.
  std::vector<bool> user_defined;
};

class Unigram final : public TokenModel {
 public:
  /// `scores` are by id. Errors    UsageError: no token to fall back on; lists of different lengths
  Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options);

  std::unique_ptr<ModelScratch> scratch() const override;
  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  /// The best cut of a beginning of the piece: its score, its last token and where that token begins.
  template <typename Score>
  struct Node {
    Score score = 0;
    int32_t id = -1, begin = -1;
  };
  template <typename Score>
  struct Scratch;

  template <typename Score>
  void encode_as(std::string_view piece, Scratch<Score>& scratch, std::vector<int32_t>& out) const;
  /// Subtracts the score of the node at `begin` from all nodes up to `end` that have one: sums stay small.
  template <typename Score>
  static void lower(std::vector<Node<Score>>& best, size_t begin, size_t end);
  template <typename Score>
  void find_best(std::string_view piece, Scratch<Score>& scratch) const;
  void append_unknown(std::string_view text, std::vector<int32_t>& out) const;

  std::vector<double> scores_;
  UnigramOptions options_;
  ByteTrie trie_;
  double unknown_score_ = 0;
  ByteTokens bytes_;
};

}  // namespace trireme::text
