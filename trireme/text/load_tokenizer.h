// Loads the tokenizer of a model's folder, or of one file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/text/tokenizer.h"

namespace trireme::text {

/// Loads the tokenizer at `path`: a file, or a folder that holds one. A folder is searched for tokenizer.json (Hugging
/// Face), tokenizer.model (SentencePiece), tekken.json (Mistral), NAME.tiktoken, and vocab.json with merges.txt (GPT-2,
/// Qwen2), in this order. The name decides how a file is read, but tiktoken's lists are known by their lines. bos_id
/// and eos_id come from the folder's tokenizer_config.json, generation_config.json or config.json: the first of these
/// files that names a token counts.
///
/// Cost      reads the file once; 0.3 s for a vocabulary of 128,000
/// Errors    UsageError naming the file and what is missing or wrong
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path);

/// A file of the tokenizer that `folder` holds, even of one that load_tokenizer refuses; empty: there is none.
std::filesystem::path find_tokenizer(const std::filesystem::path& folder);

/// True if there is one: then bytes are no substitute.
inline bool has_tokenizer(const std::filesystem::path& folder) { return !find_tokenizer(folder).empty(); }

/// Names of all files in which folders keep a tokenizer, its chat template and the defaults of generation, also a
/// tokenizer that load_tokenizer refuses. Besides, there is NAME.tiktoken.
std::vector<std::string> tokenizer_file_names();

/// Names and contents of the tokenizer's files at `path` (as for load_tokenizer). A checkpoint copies them, perhaps
/// with another chat template (set_chat_template).
std::map<std::string, std::string> tokenizer_files(const std::filesystem::path& path);

/// The id of pad_token in tokenizer_config.json, or in special_tokens_map.json, of these files (name -> bytes).
std::optional<int32_t> pad_token_in(const std::map<std::string, std::string>& files, const Tokenizer& tokenizer);

}  // namespace trireme::text
