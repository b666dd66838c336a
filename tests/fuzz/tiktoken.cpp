#include "trireme/data/tokenizer_tiktoken.h"

#include "tokenizer_use.h"

namespace trireme::fuzz {

/// tiktoken's ranks in base64.
void fuzz_tiktoken(std::string_view bytes) { use_tokenizer(data::parse_tiktoken(bytes, "cl100k.tiktoken")); }

}  // namespace trireme::fuzz
