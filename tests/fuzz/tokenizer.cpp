#include <string>

#include "targets.h"
#include "trireme/data/tokenizer_json.h"
#include "trireme/data/tokenizer_sentencepiece.h"
#include "trireme/data/tokenizer_tiktoken.h"

namespace trireme::fuzz {

/// Tokenizer files: the first byte says which kind the rest is. What loads also encodes and decodes a text.
void fuzz_tokenizer(std::string_view bytes) {
  using namespace trireme::data;
  if (bytes.empty()) return;
  const std::string_view text = bytes.substr(1);
  const PipelineTokenizer tokenizer(bytes[0] == 's'   ? parse_sentencepiece_model(text, "fuzz.model")
                                    : bytes[0] == 't' ? parse_tiktoken(text, "cl100k.tiktoken")
                                    : bytes[0] == 'k' ? parse_tekken(text, "tekken.json")
                                                      : parse_tokenizer_json(text, "tokenizer.json"));
  tokenizer.decode(tokenizer.encode("Hello, w\u00f6rld  123\n\xFF<s>", {.add_special = true}));
}

}  // namespace trireme::fuzz
