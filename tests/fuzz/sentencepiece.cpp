#include "trireme/text/tokenizer_formats.h"

#include "tokenizer_use.h"

namespace trireme::fuzz {

/// SentencePiece's tokenizer.model.
void fuzz_sentencepiece(std::string_view bytes) {
  use_tokenizer(text::parse_sentencepiece_model(bytes, "tokenizer.model"));
}

}  // namespace trireme::fuzz
