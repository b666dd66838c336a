// Writes a trained BPE as a folder with a tokenizer.json, in the form that PyPI's tokenizers writes and reads.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/text/bpe_trainer.h"
#include "trireme/text/pre_tokenizer.h"

namespace trireme::text {

/// A way of cutting text, named after the model that uses it.
struct NamedPattern {
  std::string_view name, regex;
};

/// The pattern named gpt2, llama3 or qwen2. Errors    UsageError that lists these names
const NamedPattern& pattern_named(std::string_view name);

/// Cuts the texts that a tokenizer with this pattern is trained on.
PreTokenizer pre_tokenizer_of(const NamedPattern& pattern);

/// The text of tokenizer.json: byte-level, without a normalizer; encoding finds special tokens in the text.
std::string tokenizer_json(const TrainedBpe& trained, const NamedPattern& pattern);

/// Errors    UsageError if `folder` cannot be a folder, cannot be written, or holds any tokenizer and `overwrite` is
/// false
void check_output(const std::filesystem::path& folder, bool overwrite);

/// Writes tokenizer.json, and tokenizer_config.json, which names the first special token as the end of a text: both, or
/// none if one cannot be written.
/// Errors    FileError; those of check_output
void write_tokenizer(const std::filesystem::path& folder, const TrainedBpe& trained, const NamedPattern& pattern,
                     bool overwrite);

}  // namespace trireme::text
