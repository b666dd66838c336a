// Tokenizer files: the first byte says which kind the rest is. What loads also encodes and decodes a text.
#include <cstdint>
#include <string>

#include "trireme/base/error.h"
#include "trireme/data/tokenizer_json.h"
#include "trireme/data/tokenizer_sentencepiece.h"
#include "trireme/data/tokenizer_tiktoken.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace trireme::data;
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  try {
    const PipelineTokenizer tokenizer(bytes[0] == 's'   ? parse_sentencepiece_model(text, "fuzz.model")
                                      : bytes[0] == 't' ? parse_tiktoken(text, "cl100k.tiktoken")
                                      : bytes[0] == 'k' ? parse_tekken(text, "tekken.json")
                                                        : parse_tokenizer_json(text, "tokenizer.json"));
    tokenizer.decode(tokenizer.encode("Hello, w\u00f6rld  123\n\xFF<s>", {.add_special = true}));
  } catch (const trireme::UsageError&) {  // one clear error is what bad input gets
  }
  return 0;
}
