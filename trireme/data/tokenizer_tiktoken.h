// Vocabularies that are a list of byte strings with their ranks: tiktoken's files ("base64 rank" lines) and Mistral's
// Tekken (JSON). A tiktoken file says nothing about pre-tokenizer and special tokens; its name does.
#pragma once

#include <string>
#include <string_view>

#include "trireme/data/tokenizer_pipeline.h"

namespace trireme::data {

/// Known names, which the file's name begins with: cl100k, o200k, qwen, llama3, gpt2, r50k, p50k. Others are refused.
/// Errors    UsageError naming the file and line
TokenizerParts parse_tiktoken(std::string_view text, const std::string& path);

/// Tekken: special tokens take the first ids, the vocabulary is cut to the size that the file's `config` gives.
/// Errors    UsageError naming the file and key
TokenizerParts parse_tekken(std::string_view text, const std::string& path);

}  // namespace trireme::data
