// Megatron-LM's X.idx, which says where the documents of X.bin begin (megatron/core/datasets/indexed_dataset.py):
//
//   0 "MMIDIDX\0\0"   9 u64 version 1   17 u8 dtype   18 u64 sequences S   26 u64 entries D of the document index
//   34 i32 length[S], in tokens   i64 pointer[S], bytes into .bin   i64 document[D]: sequences [d[k], d[k+1]) are
//   document k
//
// Nothing in it is aligned. The sequences must follow each other in .bin without gaps, as Megatron's own builder writes
// them. So each document is a range of one row of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "trireme/data/token_view.h"

namespace trireme::data {

inline constexpr size_t kMegatronHeaderBytes = 34;

struct MegatronHeader {
  TokenType type = TokenType::uint16;
  int64_t num_sequences = 0;
  int64_t num_document_entries = 1;  ///< one more than documents
};

/// The first kMegatronHeaderBytes of an .idx file.
std::string megatron_header(const MegatronHeader& header);

/// A view of an .idx file's bytes. The bytes have to outlive it.
class MegatronIndex {
 public:
  MegatronIndex() = default;

  /// Checks every number once: sizes, order, no gap, all inside a .bin of `bin_bytes`.
  ///
  /// Cost      one pass over `bytes`; allocates nothing
  /// Errors    UsageError naming `name`, the entry and the rule
  MegatronIndex(std::span<const std::byte> bytes, uint64_t bin_bytes, const std::string& name);

  const MegatronHeader& header() const { return header_; }
  int64_t num_tokens() const { return num_tokens_; }
  int64_t num_documents() const { return header_.num_document_entries - 1; }

  /// Token at which document d begins; for d == num_documents() that is num_tokens().
  int64_t document_start(int64_t d) const;

 private:
  int64_t length(int64_t sequence) const;
  int64_t pointer(int64_t sequence) const;
  int64_t document(int64_t d) const;
  void check(const std::string& name) const;

  MegatronHeader header_;
  int64_t num_tokens_ = 0;
  const std::byte* lengths_ = nullptr;
  const std::byte* pointers_ = nullptr;
  const std::byte* documents_ = nullptr;
};

}  // namespace trireme::data
