// Tokenizes text files into a set, on all cores. Threads read and encode blocks of text; one thread writes the results
// in order. Every two seconds the output is flushed to disk, with a note of the progress (PREFIX.part). After kill -9
// the same command continues there, and the set equals that of an undisturbed run bit for bit.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/data/text_source.h"
#include "trireme/data/token_set.h"
#include "trireme/text/tokenizer.h"

namespace trireme::data {

struct TokenizeOptions {
  std::vector<std::string> sources;  ///< files and folders
  std::filesystem::path output;      ///< PREFIX
  std::string text_field = "text";
  bool append_eos = true;  ///< appends the tokenizer's document_separator() to each document
  int num_threads = 1;
  std::optional<int64_t> max_documents;
  bool overwrite = false;
  int64_t block_bytes = kTextBlockBytes;
  std::chrono::milliseconds sync_every{2000};
  std::function<void(double done)> progress = {};
  std::function<void(int64_t done_bytes, int64_t bytes)> resumed = {};  ///< called once, if the job continues
};

/// "bpe of 300 has no end-of-text token, so that nothing would stand between documents"; empty: it has one.
std::string lacks_separator(const text::Tokenizer& tokenizer);

struct TokenizeResult {
  TokenSetAbout about;
  int64_t file_bytes = 0;       ///< of the files that were used
  int64_t encoded_bytes = 0;    ///< of text, in this call: fewer than about.source_bytes if the job was continued
  int64_t empty_documents = 0;  ///< left out
  std::string left_out;         ///< TextFiles::left_out_text
};

/// Cost      one pass over the text
/// Memory    about 8 MB a thread, and 40 bytes a file
/// Errors    UsageError: the output exists, or is an unfinished set of another job (both unless `overwrite`), or text
///           cannot be read. Unfinished files are kept only if the job can continue later (a full disk)
TokenizeResult tokenize(const TokenizeOptions& options, const text::Tokenizer& tokenizer);

}  // namespace trireme::data
