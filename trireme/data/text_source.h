// Reads the documents of many files in blocks, which threads read independently. Blocks are computed from the files'
// sizes: small files share a block, big files are cut by bytes, Parquet files by row groups; a .json is one block. So
// any thread can read any block, no thread waits for another, and the progress of a job is one number.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/data/parquet.h"
#include "trireme/data/text_files.h"
#include "trireme/text/tokenizer.h"

namespace trireme::data {

inline constexpr int64_t kTextBlockBytes = int64_t{1} << 20;

struct TextBlock {
  int64_t first_file = 0, end_file = 0;  ///< whole files of plain text, or a part of one file
  int64_t begin = 0, end = 0;  ///< the part: bytes, or row groups of a Parquet file; end 0: whole files
  int64_t bytes = 0;  ///< of the files, for progress
};

/// A document, or a part of one that is too long to be held.
struct TextPiece {
  std::string_view text;
  bool begins_document = true;
  bool ends_document = true;
  int64_t file = 0;  ///< number in TextSource::files
};

class TextSource {
 public:
  /// @param text_field  field of JSONL objects, column of Parquet files
  /// @param tokenizer   decides where plain text may be cut (text_cut.h); has to outlive the source
  TextSource(TextFiles files, std::string text_field, const text::Tokenizer& tokenizer,
             int64_t block_bytes = kTextBlockBytes);

  const TextFiles& files() const { return files_; }

  /// The next block, in order; nothing at the end. Only one thread may call it.
  std::optional<TextBlock> next_block();

  /// Calls `take` for the block's documents in order. Several threads may call it, each for its own blocks. Returns a
  /// hash of the bytes that were read.
  ///
  /// Memory    the block, or the longest line or uncuttable stretch of text in it; a .json is mapped
  /// Errors    UsageError naming the file and the line, byte or rule
  uint64_t read(const TextBlock& block, const std::function<void(const TextPiece&)>& take) const;

 private:
  uint64_t read_whole(const TextBlock& block, const std::function<void(const TextPiece&)>& take) const;
  uint64_t read_plain(const TextBlock& block, const std::function<void(const TextPiece&)>& take) const;
  uint64_t read_lines(const TextBlock& block, const std::function<void(const TextPiece&)>& take) const;
  uint64_t read_records(const TextBlock& block, const std::function<void(const TextPiece&)>& take) const;
  uint64_t read_parquet(const TextBlock& block, const std::function<void(const TextPiece&)>& take) const;

  TextFiles files_;
  std::string text_field_;
  const text::Tokenizer& tokenizer_;
  int64_t block_bytes_;
  int64_t next_file_ = 0, next_begin_ = 0;
  std::unique_ptr<ParquetColumn> parquet_;  // of file next_file_
};

}  // namespace trireme::data
