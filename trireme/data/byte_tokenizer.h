// The tokenizer without a vocabulary file: token id = byte value, 256 ids, every text and every binary
// file round-trips. Documents are separated by one newline, because no byte is free for a special token.
#pragma once

#include "trireme/data/tokenizer.h"

namespace trireme::data {

class ByteTokenizer final : public Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const override;
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const override;
  int64_t vocab_size() const override { return 256; }
  std::string name() const override { return "byte"; }
  uint64_t fingerprint() const override;
  std::vector<int32_t> document_separator() const override { return {'\n'}; }
  bool splits_anywhere() const override { return true; }
};

}  // namespace trireme::data
