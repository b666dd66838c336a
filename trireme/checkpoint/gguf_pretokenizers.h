// How text is cut before byte-level merges, by the name that GGUF gives it (tokenizer.ggml.pre).
#pragma once

#include <span>
#include <string_view>

namespace trireme::checkpoint {

struct GgufPretokenizer {
  std::string_view name;        ///< what is written
  std::string_view also;        ///< names read alike, with blanks between
  std::string_view regex;       ///< of a Split before ByteLevel; empty: ByteLevel's own (GPT-2's)
  bool digits = false;          ///< every digit alone, first
  bool nfc = false;             ///< text is composed first
  bool ignore_merges = false;   ///< words of the vocabulary are taken whole
  bool add_bos = false;         ///< where the file does not say
};

std::span<const GgufPretokenizer> gguf_pretokenizers();

/// Null where the name is unknown.
const GgufPretokenizer* find_gguf_pretokenizer(std::string_view name);

}  // namespace trireme::checkpoint
