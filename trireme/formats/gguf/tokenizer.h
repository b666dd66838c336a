// Translates between the tokenizer in a GGUF file and the files that PyPI `tokenizers` and transformers read.
//
// GGUF holds a vocabulary, merges or scores, and the *name* of the rule that cuts text before merging; tokenizer.json
// holds the rule itself. A table here maps names to rules. Token ids equal those of transformers' AutoTokenizer on the
// same file (tests/formats/gguf_judge.py), with three exceptions: digits of `smollm`, normalisation of `qwen2`, whole
// words of `llama-bpe`. There AutoTokenizer differs from the model's own tokenizer, and ids equal those of the model.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/formats/gguf/tensors.h"

namespace trireme::formats {

/// The values of tokenizer.ggml.token_type.
struct GgufTokenType {
  enum : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
};

/// A rule that cuts text before byte-level merges, by GGUF's name for it (tokenizer.ggml.pre).
struct GgufPretokenizer {
  std::string_view name;  ///< written to files
  std::string_view also;  ///< other names with the same meaning when read, separated by blanks
  std::string_view regex;  ///< of a Split before ByteLevel; empty: ByteLevel's own regex (GPT-2's)
  bool digits = false;  ///< first, every digit is cut off as a piece of its own
  bool nfc = false;  ///< first, text is composed to Unicode NFC
  bool ignore_merges = false;  ///< words of the vocabulary are taken whole
  bool add_bos = false;  ///< default if the file does not say
};

std::span<const GgufPretokenizer> gguf_pretokenizers();

/// Null if the name is unknown.
const GgufPretokenizer* find_gguf_pretokenizer(std::string_view name);

/// The texts of tokenizer.json and tokenizer_config.json by name; empty if the file has no tokenizer.
///
/// Errors    CheckpointError naming a tokenizer or a cutting rule that Trireme does not know
std::map<std::string, std::string> tokenizer_from_gguf(const GgufHeader& header);

/// Adds the tokenizer of a Hugging Face folder to `metadata`. `files` holds the texts that tokenizer_from_gguf returns,
/// and chat_template.jinja; `ends` the ids at which generation ends a text (eos_token_id). A vocabulary smaller than
/// the embedding is padded, as other writers of GGUF do.
///
/// Errors    UsageError naming what GGUF cannot express, and what to do
/// @returns  notes for the user, one fact each
std::vector<std::string> tokenizer_to_gguf(const std::map<std::string, std::string>& files,
                                           const std::vector<int64_t>& ends, int64_t vocab_size,
                                           GgufMetadata& metadata);

}  // namespace trireme::formats
