#include "trireme/text/tokenizer_formats.h"

#include "tokenizer_use.h"

namespace trireme::fuzz {

/// Hugging Face's tokenizer.json.
void fuzz_tokenizer_json(std::string_view bytes) { use_tokenizer(text::parse_tokenizer_json(bytes, "tokenizer.json")); }

}  // namespace trireme::fuzz
