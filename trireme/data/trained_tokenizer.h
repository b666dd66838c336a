// From texts to a tokenizer's folder: counts pieces, learns merges, writes tokenizer.json as PyPI's tokenizers writes
// and reads it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/bpe_trainer.h"
#include "trireme/data/pre_tokenizer.h"

namespace trireme::data {

/// A way of cutting text, by the model that made it known.
struct NamedPattern {
  std::string_view name, regex;
};

/// gpt2, llama3, qwen2. Errors    UsageError that lists them
const NamedPattern& pattern_named(std::string_view name);

/// What cuts the texts that a tokenizer with this pattern is trained from.
PreTokenizer pre_tokenizer_of(const NamedPattern& pattern);

/// The file's text: byte-level, without a normalizer; special tokens are looked for in the text.
std::string tokenizer_json(const TrainedBpe& trained, const NamedPattern& pattern);

/// Errors    UsageError when `folder` holds a tokenizer and `overwrite` is false
void check_output(const std::filesystem::path& folder, bool overwrite);

/// Writes tokenizer.json, and tokenizer_config.json with the first special token as the end of a text.
/// Errors    FileError; those of check_output
void write_tokenizer(const std::filesystem::path& folder, const TrainedBpe& trained, const NamedPattern& pattern,
                     bool overwrite);

}  // namespace trireme::data
