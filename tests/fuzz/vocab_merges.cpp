#include <array>
#include <string>

#include "tokenizer_use.h"
#include "trireme/text/tokenizer_formats.h"

namespace trireme::fuzz {

/// vocab.json, merges.txt, tokenizer_config.json, special_tokens_map.json, added_tokens.json and config.json, each
/// behind a zero byte but the first.
void fuzz_vocab_merges(std::string_view bytes) {
  std::array<std::string, 6> files;
  for (std::string& file : files) {
    file = bytes.substr(0, bytes.find('\0'));
    bytes.remove_prefix(std::min(bytes.size(), file.size() + 1));
  }
  use_tokenizer(text::parse_vocab_and_merges({.vocab = files[0],
                                              .merges = files[1],
                                              .tokenizer_config = files[2],
                                              .special_tokens_map = files[3],
                                              .added_tokens = files[4],
                                              .config = files[5]},
                                             "folder"));
}

}  // namespace trireme::fuzz
