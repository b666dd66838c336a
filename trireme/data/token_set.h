// A tokenized data set on disk, and the writer of one. PREFIX.bin and PREFIX.idx are Megatron-LM's pair
// (megatron_index.h), so that its tools and others' read what is written here and the other way round. Beside them
//
//   PREFIX.json   what the ids are made of: tokenizer, sources, counts, fingerprint (TokenSetAbout)
//   PREFIX.mask   only where some tokens are not to be learned: one byte a token, 1 = learned
//
// Training maps the files and copies windows out of them: a set larger than memory works, and all ranks of a host share
// one copy in the page cache. Pairs without the sidecar and LitGPT's packed folders (litdata.h) open as sets, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/data/megatron_index.h"
#include "trireme/data/token_view.h"

namespace trireme::data {

/// Text that a set was made from: a file, or all files of a folder.
struct TokenSource {
  std::string path;
  int64_t files = 1;
  int64_t bytes = 0;
  bool operator==(const TokenSource&) const = default;
};

/// What the sidecar says. Sets of others have none: their names are empty and numbers 0.
struct TokenSetAbout {
  std::string tokenizer;  ///< Tokenizer::name()
  uint64_t tokenizer_fingerprint = 0;
  int64_t vocab_size = 0;
  std::optional<int64_t> unknown_id;  ///< the tokenizer's token for what it does not know, where it has one
  std::vector<TokenSource> sources;
  uint64_t source_fingerprint = 0;
  int64_t source_bytes = 0;  ///< of text that became tokens
  std::string chat_template;  ///< that conversations were rendered with; empty: none
  int64_t num_documents = 0;  ///< filled in by the writer, like all that follows
  int64_t num_tokens = 0;
  int64_t supervised_tokens = 0;
  uint64_t fingerprint = 0;  ///< of ids, borders, mask and tokenizer
};

/// Errors    UsageError naming `name` and what is wrong
TokenSetAbout parse_token_set_about(std::string_view json, const std::string& name);
std::string to_json(const TokenSetAbout& about);

class TokenSet {
 public:
  /// Opens PREFIX (or PREFIX.bin, PREFIX.idx), or a folder of litdata chunks. Trusts the sidecar's fingerprint.
  ///
  /// Cost      maps the files; reads the index once, no tokens (sets without a sidecar: 64 samples of them)
  /// Errors    UsageError: not there, damaged, files that do not belong together
  static TokenSet open(const std::filesystem::path& prefix);

  /// True when open(prefix) would find something to open.
  static bool exists(const std::filesystem::path& prefix);

  int64_t num_tokens() const { return view_.size(); }
  int64_t num_documents() const { return num_documents_; }
  /// Token at which document d begins; for d == num_documents() that is num_tokens().
  int64_t document_start(int64_t d) const { return document_start_(d); }

  /// Tokens [first, first + ids.size()).
  void copy(int64_t first, std::span<int64_t> ids) const { view_.copy(first, ids); }
  const TokenView& view() const { return view_; }

  bool has_mask() const { return mask_ != nullptr; }
  /// 1 for each token that is to be learned; all ones without a mask.
  void copy_mask(int64_t first, std::span<uint8_t> out) const;
  int64_t supervised_tokens() const { return about_ ? about_->supervised_tokens : num_tokens(); }

  /// Of ids, document borders, mask and, where known, the tokenizer: equal means the same data.
  uint64_t fingerprint() const { return fingerprint_; }

  /// fingerprint() from the files as they are: reads them whole. Nothing for sets that this program did not write.
  std::optional<uint64_t> recompute_fingerprint() const;

  /// Nothing for sets that this program did not write.
  const std::optional<TokenSetAbout>& about() const { return about_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  friend TokenSet open_litdata(const std::filesystem::path& folder);
  TokenSet() = default;

  std::filesystem::path path_;
  TokenView view_;
  std::shared_ptr<const base::MappedFile> mask_;
  int64_t num_documents_ = 0;
  std::function<int64_t(int64_t)> document_start_;
  uint64_t fingerprint_ = 0;
  std::optional<TokenSetAbout> about_;
};

/// How far a set is written: enough to go on from when the process was killed.
struct TokenSetProgress {
  int64_t tokens = 0, documents = 0, sequences = 0, supervised = 0;
  int64_t sequence_tokens = 0, document_sequences = 0;  ///< of the sequence and document not yet ended
  std::vector<std::pair<int64_t, int64_t>> long_documents = {};  ///< (document, its sequences) where those are several
};

/// Writes a set beside its final place; `commit` makes it appear, the .idx last: without it there is no set. Several
/// processes may write the same set at once. Without `commit` nothing is left behind. The files get `mode`
/// (base::readable_as): whoever may not read the text may not read its tokens either.
class TokenSetWriter {
 public:
  /// Errors    FileError: the folder cannot be written, the disk is full; UsageError: PREFIX.json or PREFIX.bin is
  ///           another's, for instance the text itself
  TokenSetWriter(std::filesystem::path prefix, int64_t vocab_size, bool with_mask = false, unsigned mode = 0644);

  /// A set without a mask in files that stay when the process dies, PREFIX.bin.part and PREFIX.idx.part: goes on from
  /// what sync() returned, or begins anew.
  ///
  /// Errors    FileError; UsageError when another process writes them, or they are shorter than `from` says
  TokenSetWriter(std::filesystem::path prefix, int64_t vocab_size, const TokenSetProgress& from, unsigned mode = 0644);

  TokenSetWriter(const TokenSetWriter&) = delete;
  ~TokenSetWriter();

  /// Everything so far is on disk when this returns.
  TokenSetProgress sync();
  /// Removes the files of a resumable writer with it.
  void discard() { keeps_parts_ = false; }

  /// `mask` is as long as `ids`, or empty where the set has none (or all of them are to be learned).
  void append_document(std::span<const int32_t> ids, std::span<const uint8_t> mask = {});

  /// A document in pieces: those since the last end_document() belong together.
  void append(std::span<const int32_t> ids, std::span<const uint8_t> mask = {});
  void end_document();

  int64_t num_tokens() const { return at_.tokens; }
  int64_t num_documents() const { return at_.documents; }

  /// `about` as far as it is not filled in here; vocab_size is the constructor's.
  ///
  /// Cost      reads the tokens once for their fingerprint
  TokenSetAbout commit(TokenSetAbout about);  ///< as it stands in the sidecar

 private:
  struct Part {
    std::filesystem::path temporary;
    base::FileDescriptor file;
    int64_t bytes = 0;  // that are in the file
    std::vector<std::byte> buffer;  // and that are not yet
  };
  Part create(const char* suffix) const;
  Part reopen(const char* suffix, int64_t bytes) const;
  void prepare_place() const;
  static void write(Part& part, std::span<const std::byte> bytes);
  static void flush(Part& part);
  void appear(Part& part, const char* suffix);
  void end_sequence();
  void finish_index();
  bool holds(uint64_t fingerprint) const;

  std::filesystem::path prefix_;
  int64_t vocab_size_;
  TokenType type_;
  unsigned mode_;
  Part bin_, idx_;
  std::optional<Part> mask_, json_;
  TokenSetProgress at_;
  bool keeps_parts_ = false;
  std::vector<std::byte> packed_;
};

}  // namespace trireme::data
