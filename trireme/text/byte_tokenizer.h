// The tokenizer that needs no vocabulary file. A token id is a byte's value, so there are 256 ids and any file
// round-trips. One newline separates documents, because no byte is free for a special token.
#pragma once

#include "trireme/text/tokenizer.h"

namespace trireme::text {

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

}  // namespace trireme::text
