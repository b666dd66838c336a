// Text files to a tokenized set, on all cores. Threads read and encode blocks of text; one writes what they made, in
// order. Every two seconds what is written goes to disk together with a note of how far it goes (PREFIX.part):
// after kill -9 the same command goes on there, and the set is bit for bit that of an undisturbed run.
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
#include "trireme/data/tokenizer.h"

namespace trireme::data {

struct TokenizeOptions {
  std::vector<std::string> sources;  ///< files and folders
  std::filesystem::path output;      ///< PREFIX
  std::string text_field = "text";
  bool append_eos = true;  ///< the tokenizer's document_separator() behind each document
  int num_threads = 1;
  std::optional<int64_t> max_documents;
  bool overwrite = false;
  int64_t block_bytes = kTextBlockBytes;
  std::chrono::milliseconds sync_every{2000};
  std::function<void(double done)> progress = {};
  std::function<void(int64_t done_bytes, int64_t bytes)> resumed = {};  ///< told once, where it goes on
};

struct TokenizeResult {
  TokenSetAbout about;
  int64_t file_bytes = 0;       ///< of the files, as far as they were used
  int64_t encoded_bytes = 0;    ///< of text, by this call: fewer than about.source_bytes where it went on
  int64_t empty_documents = 0;  ///< left out
};

/// Cost      one pass over the text
/// Memory    about 8 MB a thread, and 40 bytes a file
/// Errors    UsageError: output that is there already, an unfinished one of other settings (both unless `overwrite`),
/// text
///           that cannot be read; the unfinished files stay only where going on makes sense (a full disk)
TokenizeResult tokenize(const TokenizeOptions& options, const Tokenizer& tokenizer);

}  // namespace trireme::data
