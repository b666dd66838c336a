#include "trireme/text/tokenizer_formats.h"

#include "tokenizer_use.h"

namespace trireme::fuzz {

/// tiktoken's ranks in base64.
void fuzz_tiktoken(std::string_view bytes) { use_tokenizer(text::parse_tiktoken(bytes, "cl100k.tiktoken")); }

}  // namespace trireme::fuzz
