// The Unigram model: of all ways to cut a piece into tokens, the one whose log-probabilities add up to the most
// (Viterbi). Of ways with equal sums the one whose last token begins first wins, and sums are compared as they are
// rounded: so ties fall as in sentencepiece 0.2.3 (EncodeOptimized) and tokenizers. Source: Kudo, Subword
// Regularization (2018).
#pragma once

#include <array>
#include <string>
#include <vector>

#include "trireme/data/byte_trie.h"
#include "trireme/data/token_model.h"
#include "trireme/data/vocabulary.h"

namespace trireme::data {

struct UnigramOptions {
  std::optional<int32_t> unknown;
  bool byte_fallback = false;
  bool single_precision = false;  ///< sums in float, as sentencepiece has them; tokenizers sums in double
  /// Of each id: may text become it? Control and byte tokens of SentencePiece files may not. Empty: all may.
  std::vector<bool> matchable;
  /// User-defined tokens, which win over all others where they occur: they have a small score above 0 in place of
  /// their own. Empty: none.
  std::vector<bool> user_defined;
};

class Unigram final : public TokenModel {
 public:
  /// `scores` by id. Errors    UsageError: no token to fall back on, lists of different lengths
  Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramOptions options);

  std::unique_ptr<ModelScratch> scratch() const override;
  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override;
  std::string_view token(int32_t id) const override { return vocabulary_.token(id); }
  std::optional<int32_t> id_of(std::string_view token) const override { return vocabulary_.find(token); }
  int64_t vocab_size() const override { return vocabulary_.size(); }

 private:
  /// The best way to the end of some text: its score, its last token and where that begins.
  template <typename Score>
  struct Node {
    Score score = 0;
    int32_t id = -1, begin = -1;
  };
  template <typename Score>
  struct Scratch;

  template <typename Score>
  void encode_as(std::string_view piece, Scratch<Score>& scratch, std::vector<int32_t>& out) const;
  /// Takes the score of the node at `begin` from those up to `end` that have one.
  template <typename Score>
  static void lower(std::vector<Node<Score>>& best, size_t begin, size_t end);
  template <typename Score>
  void find_best(std::string_view piece, Scratch<Score>& scratch) const;
  void append_unknown(std::string_view text, std::vector<int32_t>& out) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  UnigramOptions options_;
  ByteTrie trie_;
  double unknown_score_ = 0;
  std::array<int32_t, 256> byte_{};
  bool has_every_byte_ = true;
};

}  // namespace trireme::data
