// What every tokenizer that loads is put through.
#pragma once

#include <string>
#include <vector>

#include "targets.h"
#include "trireme/text/tokenizer_pipeline.h"
#include "trireme/text/utf8.h"

namespace trireme::fuzz {

/// Encodes and decodes texts; every id is the vocabulary's, and text that comes token by token is whole characters.
inline void use_tokenizer(text::TokenizerParts parts) {
  const text::PipelineTokenizer tokenizer(std::move(parts));
  for (const std::string_view text :
       {"Hello, w\u00f6rld  123\n\xFF<s>", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa \u2581 \u00bd\u0301"}) {
    for (const bool parse : {true, false}) {
      const std::vector<int32_t> ids = tokenizer.encode(text, {.parse_special = parse, .add_special = true});
      for (const int32_t id : ids) require(id >= 0 && id < tokenizer.vocab_size(), "an id is of the vocabulary");
      tokenizer.decode(ids, {.skip_special = parse});
      text::Utf8Stream stream;
      for (size_t i = 0; i < ids.size(); ++i)
        require(text::is_utf8(stream.push(tokenizer.token_bytes(ids[i], i == 0))), "text comes as whole characters");
    }
  }
}

}  // namespace trireme::fuzz
