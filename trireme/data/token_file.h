// A corpus after tokenizing: a 64-byte header and the ids as uint8, uint16 or uint32, little-endian, in the
// narrowest width that holds the vocabulary. Training maps the file and copies windows out of it, so a
// corpus larger than memory works and all ranks of a host share one copy in the page cache.
//
//   0 "TRIREME\0"   8 u32 version 1   12 u32 bytes per token   16 u64 tokens   24 u64 fingerprint of the sources
//   32 u64 fingerprint of the tokenizer   40 u64 vocabulary   48 u64 documents   56 u64 zero   64 the ids
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "trireme/base/files.h"

namespace trireme::data {

struct TokenFileInfo {
  int64_t num_tokens = 0;
  int64_t num_documents = 0;
  int64_t vocab_size = 0;
  uint64_t source_fingerprint = 0;
  uint64_t tokenizer_fingerprint = 0;
};

/// A row of tokens somewhere in memory; copying it copies no token and keeps the file mapped.
class TokenView {
 public:
  TokenView() = default;
  TokenView(std::shared_ptr<const std::byte> bytes, int width, int64_t size)
      : bytes_(std::move(bytes)), width_(width), size_(size) {}

  int64_t size() const { return size_; }
  int64_t operator[](int64_t index) const;

  /// Writes tokens [first, first + out.size()) to `out`; InternalError when they are not all there.
  void copy(int64_t first, std::span<int64_t> out) const;

  /// Tokens [first, first + count).
  TokenView sub(int64_t first, int64_t count) const;

 private:
  std::shared_ptr<const std::byte> bytes_;
  int width_ = 1;
  int64_t size_ = 0;
};

struct TokenFile {
  TokenFileInfo info;
  TokenView tokens;
};

/// Maps the file; nothing when there is none, or it is not a whole token file of this version.
std::optional<TokenFile> open_token_file(const std::filesystem::path& path);

/// Writes a token file beside its final place; `commit` makes it appear by one rename, so that two
/// processes may write the same file at once. Without `commit` nothing is left behind.
/// FileError (a UsageError) when the folder cannot be written or the disk is full.
class TokenFileWriter {
 public:
  TokenFileWriter(std::filesystem::path path, int64_t vocab_size);
  TokenFileWriter(const TokenFileWriter&) = delete;
  ~TokenFileWriter();

  void append(std::span<const int32_t> ids);
  void commit(TokenFileInfo info);  ///< num_tokens and vocab_size are filled in

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  base::FileDescriptor file_;
  int64_t vocab_size_;
  int width_;
  int64_t num_tokens_ = 0;
  std::vector<std::byte> packed_;
};

}  // namespace trireme::data
