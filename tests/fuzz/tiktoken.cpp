#include "trireme/text/tokenizer_formats.h"

#include "tokenizer_use.h"

namespace trireme::fuzz {

/// tiktoken's ranks in base64, by the name of the file; last under a name that says nothing, as Llama 3's has.
void fuzz_tiktoken(std::string_view bytes) {
  text::is_tiktoken_list(bytes);
  for (const char* name : {"cl100k.tiktoken", "llama3.tiktoken", "qwen.tiktoken", "tokenizer.model"})
    use_tokenizer(text::parse_tiktoken(bytes, name));
}

}  // namespace trireme::fuzz
