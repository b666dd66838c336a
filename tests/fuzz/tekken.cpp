#include "trireme/text/tokenizer_formats.h"

#include "tokenizer_use.h"

namespace trireme::fuzz {

/// Mistral's tekken.json.
void fuzz_tekken(std::string_view bytes) { use_tokenizer(text::parse_tekken(bytes, "tekken.json")); }

}  // namespace trireme::fuzz
