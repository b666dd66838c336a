// The tokenizer of a model's folder, or of one file.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "trireme/data/tokenizer.h"

namespace trireme::data {

/// Loads the tokenizer at `path`: a file, or a folder that holds one: tokenizer.json (Hugging Face), tokenizer.model
/// (SentencePiece), tekken.json (Mistral) or NAME.tiktoken, in this order. A file's kind is told by its name. bos_id
/// and eos_id come from the folder's tokenizer_config.json, generation_config.json or config.json, whichever names them
/// first.
///
/// Cost      reads the file once; 0.3 s for a vocabulary of 128,000
/// Errors    UsageError naming the file and what is missing or wrong
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

/// True when `folder` holds a tokenizer, be it one that load_tokenizer refuses: bytes do not take its place.
bool has_tokenizer(const std::filesystem::path& folder);

/// The files that belong to the tokenizer at `path` (as load_tokenizer takes it), name and bytes: a checkpoint takes
/// them along unchanged.
std::map<std::string, std::string> tokenizer_files(const std::filesystem::path& path);

}  // namespace trireme::data
