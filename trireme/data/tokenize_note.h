// PREFIX.part: the progress of `trireme data tokenize`, and which job it belongs to.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/data/token_set.h"

namespace trireme::data {

struct TokenizeNote {
  uint64_t job = 0;    ///< hash of files, tokenizer and settings: another job cannot continue here
  int64_t blocks = 0;  ///< blocks of text that are in the set
  int64_t file_bytes = 0, text_bytes = 0, empty_documents = 0;
  uint64_t source_hash = 0;  ///< of the text so far
  TokenSetProgress set;
};

std::string to_json(const TokenizeNote& note);

/// Errors    UsageError naming `name` and what is wrong
TokenizeNote parse_tokenize_note(std::string_view json, const std::string& name);

}  // namespace trireme::data
