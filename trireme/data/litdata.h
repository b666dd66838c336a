// Reads LitGPT's packed folders: index.json and chunks of documents. Lightning's litdata writes them for its
// TokensLoader.
//
//   chunk   u32 N   u32 offset[N+1], from the start of the file; the first is 4 * (N + 2)   the documents' tokens
//
// A folder opens as one row of tokens, chunk after chunk. Compressed chunks are not read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/data/token_view.h"

namespace trireme::data {

class TokenSet;

struct LitdataIndex {
  struct Chunk {
    std::string file;  ///< a name in the folder
    int64_t documents = 0;  ///< "chunk_size"
    int64_t tokens = -1;  ///< "dim"; -1: the index does not say
  };
  TokenType type = TokenType::int32;
  std::vector<Chunk> chunks;
};

/// Errors    UsageError naming `name` and what is wrong: no index, chunks that are compressed or hold no tokens
LitdataIndex parse_litdata_index(std::string_view json, const std::string& name);

/// A view of a chunk that knows where its documents begin. `bytes` have to outlive it.
class LitdataChunk {
 public:
  /// Errors    UsageError naming `name`: borders outside the file, out of order, inside a token; counts that differ
  ///           from `said`
  LitdataChunk(std::span<const std::byte> bytes, TokenType type, const LitdataIndex::Chunk& said,
               const std::string& name);

  int64_t num_documents() const { return num_documents_; }
  int64_t num_tokens() const { return document_start(num_documents_); }
  const std::byte* tokens() const { return bytes_ + offset(0); }
  int64_t document_start(int64_t d) const { return (offset(d) - offset(0)) / width_; }

 private:
  int64_t offset(int64_t d) const;

  const std::byte* bytes_;
  int64_t num_documents_ = 0;
  int64_t width_;
};

/// True for a folder with an index.json.
bool is_litdata(const std::filesystem::path& folder);

/// TokenSet::open for such a folder.
TokenSet open_litdata(const std::filesystem::path& folder);

}  // namespace trireme::data
