// A tokenizer made of parts. Text passes through added tokens, normalizer, added tokens again, pre-tokenizer and model.
// The decoder goes the way back. tokenizer_formats.h reads the parts from files.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/text/added_tokens.h"
#include "trireme/text/normalizer.h"
#include "trireme/text/pre_tokenizer.h"
#include "trireme/text/token_decoder.h"
#include "trireme/text/token_model.h"
#include "trireme/text/tokenizer.h"

namespace trireme::text {

struct TokenizerParts {
  AddedTokens added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  TokenDecoder decoder;
  std::vector<int32_t> before, after;  ///< what add_special puts around a text
  std::optional<int32_t> bos, eos;
  std::vector<int32_t> separator;  ///< between documents; empty: chosen from the special tokens
  std::string name;  ///< "bpe", "unigram"; the tokenizer's name() adds the size
  uint64_t fingerprint = 0;  ///< of the files
  bool takes_bytes = false;  ///< any bytes are text; false: bytes that are not UTF-8 become U+FFFD
  bool hides_special = false;  ///< decoding always leaves special tokens out
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts);

  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const override;
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const override;
  std::string token_bytes(int32_t id, bool is_first = false) const override;
  int64_t vocab_size() const override { return vocab_size_; }
  std::string name() const override;
  uint64_t fingerprint() const override;
  std::vector<int32_t> document_separator() const override { return parts_.separator; }
  std::optional<int32_t> bos_id() const override { return parts_.bos; }
  std::optional<int32_t> eos_id() const override { return parts_.eos; }
  std::optional<int32_t> token_id(std::string_view token) const override;
  std::string token_content(int32_t id) const override;
  bool is_special(int32_t id) const override;

 private:
  class Lease;  // lends a ModelScratch of idle_ to one call

  void encode_section(std::string_view text, TextBefore before, const EncodeOptions& options, ModelScratch& scratch,
                      std::vector<int32_t>& out) const;
  std::vector<int32_t> encode_tiktoken_bytes(std::string_view text) const;
  std::string_view token(int32_t id) const;
  std::vector<int32_t> choose_separator() const;

  TokenizerParts parts_;
  int64_t vocab_size_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<ModelScratch>> idle_;  // one for each thread that ever encoded at the same time
};

}  // namespace trireme::text
