// The BPE model of tokenizer.json, SentencePiece files and tiktoken files. A piece of text, about a word, becomes
// symbols: bytes or characters. Then pairs of symbols merge by rank (bpe_merges.h). In a byte-level vocabulary the
// symbols are bytes. Its file writes them in GPT-2's alphabet (byte_alphabet.h), but pieces are plain bytes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/text/bpe_merges.h"
#include "trireme/text/byte_trie.h"
#include "trireme/text/token_model.h"

namespace trireme::text {

struct BpeOptions {
  bool byte_level = false;     ///< pieces are bytes, and the vocabulary is written in GPT-2's alphabet
  bool ignore_merges = false;  ///< a piece that is a token becomes that token, without merges
  bool byte_fallback = false;  ///< characters outside the vocabulary become tokens of their bytes, <0x41>
  bool fuse_unknown = false;   ///< several unknown characters in a row are one unknown token
  std::string unknown;         ///< the token for characters outside the vocabulary; empty: they are dropped
  std::string prefix;          ///< stands before every character of a piece but the first ("##")
  std::string suffix;          ///< stands after a piece's last character ("</w>")
};

class Bpe final : public TokenModel {
 public:
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  /// `merges` are in the order of their ranks, lowest first.
  /// Errors    UsageError: the vocabulary lacks a token of a merge, or the unknown token
  Bpe(Vocabulary vocabulary, const Pairs& merges, BpeOptions options);

  /// For files without a list of merges: tiktoken's, in which ids are ranks, and SentencePiece's. Two neighbours merge
  /// if their joined strings are a token. `rank_of[id]` is that token's rank; with MergeTable::kNone, no text becomes
  /// the token.
  static std::unique_ptr<Bpe> by_rank(Vocabulary vocabulary, const std::vector<uint32_t>& rank_of, BpeOptions options);

  /// These tokens are taken wherever they occur, before any merge. Where several begin, the longest is taken.
  void freeze(const std::vector<int32_t>& tokens);

  std::unique_ptr<ModelScratch> scratch() const override;
  void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const override;

 private:
  Bpe(Vocabulary vocabulary, BpeOptions options);

  void find_symbols();
  bool never_merges_before_spaces() const;
  void encode_unfrozen(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const;
  void encode_word(std::string_view word, ModelScratch& scratch, std::vector<int32_t>& out) const;
  void symbols_of(std::string_view piece, std::vector<int32_t>& out) const;
  void characters_of(std::string_view piece, std::vector<int32_t>& out) const;
  std::optional<int32_t> whole(std::string_view piece) const;

  BpeOptions options_;
  MergeTable merges_;
  ByteTokens bytes_;
  bool cuts_at_spaces_ = false;  // no token spans two words, so words are encoded and cached one by one
  ByteTrie frozen_;
  bool has_frozen_ = false;
  std::optional<int32_t> unknown_;
};

}  // namespace trireme::text
