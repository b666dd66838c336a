#include "trireme/data/tokenizer_tiktoken.h"

#include "tokenizer_use.h"

namespace trireme::fuzz {

/// Mistral's tekken.json.
void fuzz_tekken(std::string_view bytes) { use_tokenizer(data::parse_tekken(bytes, "tekken.json")); }

}  // namespace trireme::fuzz
