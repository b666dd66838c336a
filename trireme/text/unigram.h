// The Unigram model. Of all ways to cut a piece into tokens, it takes the one with the largest sum of log-probabilities
// (Viterbi). If two sums are equal, the cut whose last token begins earlier wins. The sums are rounded as in
// sentencepiece 0.2.3 (EncodeOptimized) and in tokenizers, so ties end as they do there. Source: Kudo, Subword
// Regularization (2018).
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
  /// For each id: whether text may become this token. For control and byte tokens of SentencePiece files it may not.
  /// Empty: every token may match.
  std::vector<bool> matchable;
  /// For each id: whether it is a user-defined token. These get a small score above 0, so they win wherever they occur.
  /// Empty: none is.
  std::vector<bool> user_defined;
};

class Unigram final : public TokenModel {
 public:
  /// `scores` has one score for each id. Errors    UsageError: no token to fall back on; lists of different lengths
  Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options);

  std::unique_ptr<ModelScratch> scratch() const override;
  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  /// The best cut of one prefix of the piece: its score, its last token, and where this token begins.
  template <typename Score>
  struct Node {
    Score score = 0;
    int32_t id = -1, begin = -1;
  };
  template <typename Score>
  struct Scratch;

  template <typename Score>
  void encode_as(std::string_view piece, Scratch<Score>& scratch, std::vector<int32_t>& out) const;
  /// Subtracts the score of the node at `begin` from the scores of the nodes from `begin` to `end`, so sums stay small.
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
