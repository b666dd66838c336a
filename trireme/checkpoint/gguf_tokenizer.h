// The tokenizer inside a GGUF file, as the files that PyPI `tokenizers` and transformers read, and the other way.
//
// GGUF holds a vocabulary, merges or scores, and the *name* of the rule that cuts text before merging; tokenizer.json
// holds the rule itself. Names and rules are a table here. Ids equal those of transformers' AutoTokenizer on the same
// file (tests/checkpoint/gguf_judge.py), but where the model's own tokenizer is known to differ from it (digits of
// `smollm`, normalisation of `qwen2`, whole words of `llama-bpe`), they equal the model's own.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/checkpoint/gguf_tensors.h"

namespace trireme::checkpoint {

/// Of tokenizer.ggml.token_type.
struct GgufTokenType {
  enum : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
};

/// Name -> text: tokenizer.json and tokenizer_config.json; empty where the file has no tokenizer.
///
/// Errors    CheckpointError naming a tokenizer or a cutting rule that Trireme does not know
std::map<std::string, std::string> tokenizer_from_gguf(const GgufHeader& header);

/// Adds the tokenizer of a Hugging Face folder to `metadata`; `files` as tokenizer_from_gguf gives them, and
/// chat_template.jinja. Vocabularies smaller than the embedding are padded, as other writers of GGUF do.
///
/// Errors    UsageError naming what GGUF cannot express, with the way out
/// @returns  notes for the user, one fact each
std::vector<std::string> tokenizer_to_gguf(const std::map<std::string, std::string>& files, int64_t vocab_size,
                                           GgufMetadata& metadata);

}  // namespace trireme::checkpoint
