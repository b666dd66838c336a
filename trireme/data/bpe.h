// The BPE model of tokenizer.json, of SentencePiece files and of tiktoken files: a piece becomes symbols (bytes or
// characters), then pairs merge by rank (bpe_merges.h). In byte-level vocabularies the symbols are bytes; the file
// writes them in GPT-2's alphabet (byte_alphabet.h), and pieces come as plain bytes.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "trireme/data/bpe_merges.h"
#include "trireme/data/byte_trie.h"
#include "trireme/data/token_model.h"
#include "trireme/data/vocabulary.h"

namespace trireme::data {

struct BpeOptions {
  bool byte_level = false;     ///< pieces are bytes, the vocabulary is written in GPT-2's alphabet
  bool ignore_merges = false;  ///< a piece that is a token is that token, whatever the merges would make of it
  bool byte_fallback = false;  ///< characters outside the vocabulary become their bytes' tokens, <0x41>
  bool fuse_unknown = false;   ///< several unknown characters in a row are one unknown token
  std::string unknown;         ///< the token for what is outside the vocabulary; empty: such characters vanish
  std::string prefix;          ///< before every character of a piece but the first ("##")
  std::string suffix;          ///< behind a piece's last character ("</w>")
};

class Bpe final : public TokenModel {
 public:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  /// `merges` in the order of their ranks.
  /// Errors    UsageError: a merge of or into a token that the vocabulary lacks, an unknown token that it lacks
  Bpe(Vocabulary vocabulary, const Pairs& merges, BpeOptions options);

  /// Two neighbours merge when their strings together are a token; `rank_of` says in which order (by id), and kNone
  /// that a token is never made from text. So work tiktoken's files (the ids are the ranks) and SentencePiece's.
  static std::unique_ptr<Bpe> by_rank(Vocabulary vocabulary, const std::vector<uint32_t>& rank_of, BpeOptions options);

  /// Tokens that stand where they occur, whatever the merges say: the longest first.
  void freeze(const std::vector<int32_t>& tokens);

  std::unique_ptr<ModelScratch> scratch() const override;
  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override;
  std::string_view token(int32_t id) const override { return vocabulary_.token(id); }
  std::optional<int32_t> id_of(std::string_view token) const override { return vocabulary_.find(token); }
  int64_t vocab_size() const override { return vocabulary_.size(); }

 private:
  Bpe(Vocabulary vocabulary, BpeOptions options);

  void find_symbols();
  bool never_merges_before_spaces() const;
  void encode_unfrozen(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const;
  void encode_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const;
  void symbols_of(std::string_view piece, std::vector<int32_t>& out) const;
  void characters_of(std::string_view piece, std::vector<int32_t>& out) const;
  std::optional<int32_t> whole(std::string_view piece) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  MergeTable merges_;
  std::array<int32_t, 256> byte_{};  // id of each byte, alone (byte-level) or as <0xNN>; -1: none
  bool has_every_byte_ = false;
  bool cuts_at_spaces_ = false;  // nothing merges across the start of a word, so words are encoded (and kept) alone
  ByteTrie frozen_;
  bool has_frozen_ = false;
  std::optional<int32_t> unknown_;
};

}  // namespace trireme::data
