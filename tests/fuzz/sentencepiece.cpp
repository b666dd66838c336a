#include "trireme/data/tokenizer_sentencepiece.h"

#include "tokenizer_use.h"

namespace trireme::fuzz {

/// SentencePiece's tokenizer.model.
void fuzz_sentencepiece(std::string_view bytes) {
  use_tokenizer(data::parse_sentencepiece_model(bytes, "tokenizer.model"));
}

}  // namespace trireme::fuzz
