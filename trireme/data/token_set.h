// A tokenized data set on disk, and its writer. PREFIX.bin and PREFIX.idx are Megatron-LM's pair (megatron_index.h):
// Megatron's tools read Trireme's sets, and Trireme reads theirs. Beside them are
//
//   PREFIX.json   where the ids come from: tokenizer, sources, counts, fingerprint (TokenSetAbout)
//   PREFIX.mask   only if some tokens are not to be learned: one byte a token, 1 = learned
//
// Training maps the files and copies windows out of them. So a set may be larger than memory, and all ranks of a host
// share one copy in the page cache. Pairs without the sidecar (PREFIX.json) and LitGPT's packed folders (litdata.h)
// open as sets too.
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

/// A source of a set's text: a file, or all files of a folder.
struct TokenSource {
  std::string path;
  int64_t files = 1;
  int64_t bytes = 0;
  bool operator==(const TokenSource&) const = default;
};

/// What became of the conversations that a set was made of.
struct ConversationTally {
  int64_t conversations = 0;  ///< read
  int64_t cut = 0;            ///< longer than max_tokens and cut there
  int64_t dropped = 0;        ///< longer and left out
  int64_t without_reply = 0;  ///< left out: nothing to learn in their first max_tokens
  int64_t max_tokens = 0;     ///< the most for one conversation; 0: no limit
  bool operator==(const ConversationTally&) const = default;
};

/// The contents of the sidecar. For a set without one, names are empty and numbers 0.
struct TokenSetAbout {
  std::string tokenizer;  ///< Tokenizer::name()
  uint64_t tokenizer_fingerprint = 0;
  int64_t vocab_size = 0;
  std::optional<int64_t> unknown_id;  ///< the tokenizer's token for unknown text, if it has one
  std::vector<TokenSource> sources;
  uint64_t source_fingerprint = 0;
  int64_t source_bytes = 0;  ///< bytes of text that became tokens
  std::string chat_template;  ///< for conversations; empty: none
  std::optional<ConversationTally> tally;  ///< for conversations
  int64_t num_documents = 0;  ///< the writer fills in this field and all below
  int64_t num_tokens = 0;
  int64_t supervised_tokens = 0;
  uint64_t fingerprint = 0;  ///< of ids, borders, mask and tokenizer
};

/// Errors    UsageError naming `name` and what is wrong
TokenSetAbout parse_token_set_about(std::string_view json, const std::string& name);
std::string to_json(const TokenSetAbout& about);

inline constexpr int64_t kMostIds = int64_t{1} << 31;  ///< no tokenizer has more

class TokenSet {
 public:
  /// Opens PREFIX (or PREFIX.bin, PREFIX.idx), or a folder of litdata chunks. Trusts the sidecar's fingerprint.
  ///
  /// Cost      maps the files; reads the index once, no tokens (sets without a sidecar: 64 samples of them)
  /// Errors    UsageError: not there, damaged, files that do not belong together
  static TokenSet open(const std::filesystem::path& prefix);

  /// True if open(prefix) would find a set.
  static bool exists(const std::filesystem::path& prefix);
  /// Whether who names this path as data means a set: a text of that very name counts before it.
  static bool is_named_by(const std::filesystem::path& path);

  int64_t num_tokens() const { return view_.size(); }
  int64_t num_documents() const { return num_documents_; }
  /// Token at which document d begins; for d == num_documents() that is num_tokens().
  int64_t document_start(int64_t d) const { return document_start_(d); }

  /// Copies tokens [first, first + ids.size()) to `ids`.
  /// Errors    UsageError: the set is damaged, because one of them is outside its vocabulary (limit_ids)
  void copy(int64_t first, std::span<int64_t> ids) const;
  const TokenView& view() const { return view_; }

  bool has_mask() const { return mask_ != nullptr; }
  /// 1 for each token to be learned; all ones without a mask.
  /// Errors    UsageError: the set is damaged, because its mask has other bytes than 0 and 1
  void copy_mask(int64_t first, std::span<uint8_t> out) const;
  /// The mask's bytes as they are; empty: there is none.
  std::span<const std::byte> mask() const { return mask_ ? mask_->bytes() : std::span<const std::byte>(); }

  /// From now on, copy() refuses ids outside [0, end) with `rule`, which says what that means of the set. A set is
  /// opened with the vocabulary that its sidecar names; without one, ids are below 2^31, as all tokenizers' are.
  void limit_ids(int64_t end, std::string rule);
  int64_t supervised_tokens() const { return about_ ? about_->supervised_tokens : num_tokens(); }

  /// The fingerprint of ids, document borders, mask and, if known, the tokenizer. Equal fingerprints mean equal data.
  uint64_t fingerprint() const { return fingerprint_; }

  /// fingerprint(), computed from the whole files. Nothing for sets that Trireme did not write.
  std::optional<uint64_t> recompute_fingerprint() const;

  /// Nothing for sets that Trireme did not write.
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
  int64_t ids_end_ = kMostIds;
  std::string ids_rule_ = "no tokenizer has such a one: the set is damaged";
};

/// How much of a set is written. With it, a writer continues after the process was killed.
struct TokenSetProgress {
  int64_t tokens = 0, documents = 0, sequences = 0, supervised = 0;
  int64_t sequence_tokens = 0, document_sequences = 0;  ///< of the unfinished sequence and document
  std::vector<std::pair<int64_t, int64_t>> long_documents = {};  ///< (document, its number of sequences), if above 1
};

/// Writes a set into temporary files beside its final place. `commit` renames them, the .idx last: without .idx there
/// is no set. Without `commit` nothing is left behind. Several processes may write the same set at once. The files get
/// `mode` (base::readable_as), so that users who may not read the text may not read its tokens either.
class TokenSetWriter {
 public:
  /// Errors    FileError: the folder cannot be written, the disk is full; UsageError: PREFIX.json or PREFIX.bin is
  ///           another file, for instance the text itself
  TokenSetWriter(std::filesystem::path prefix, int64_t vocab_size, bool with_mask = false, unsigned mode = 0644);

  /// A resumable writer, without a mask. PREFIX.bin.part and PREFIX.idx.part remain if the process dies. The writer
  /// continues at `from`, which sync() returned; an empty `from` starts from the beginning.
  ///
  /// Errors    FileError; UsageError if another process writes these files, or they are shorter than `from` says
  TokenSetWriter(std::filesystem::path prefix, int64_t vocab_size, const TokenSetProgress& from, unsigned mode = 0644);

  TokenSetWriter(const TokenSetWriter&) = delete;
  ~TokenSetWriter();

  /// Everything so far is on disk when sync() returns.
  TokenSetProgress sync();
  /// Makes a resumable writer remove its files when it is destroyed.
  void discard() { keeps_parts_ = false; }

  /// `mask` is as long as `ids`; empty: the set has no mask, or all `ids` are to be learned.
  /// Errors    UsageError for a mask of another length, or of a set without one, and for ids outside the vocabulary
  void append_document(std::span<const int32_t> ids, std::span<const uint8_t> mask = {});

  /// Adds a piece of a document. The pieces since the last end_document() belong together.
  void append(std::span<const int32_t> ids, std::span<const uint8_t> mask = {});
  void end_document();

  int64_t num_tokens() const { return at_.tokens; }
  int64_t num_documents() const { return at_.documents; }

  /// Completes the set: fills in the rest of `about`, writes it, and returns it as the sidecar has it.
  ///
  /// Cost      reads the tokens once for their fingerprint
  /// Errors    UsageError inside a document
  TokenSetAbout commit(TokenSetAbout about);

 private:
  struct Part {
    std::filesystem::path temporary;
    base::FileDescriptor file;
    int64_t bytes = 0;  // in the file
    std::vector<std::byte> buffer;  // not yet in the file
  };
  Part create(const char* suffix) const;
  Part reopen(const char* suffix, int64_t bytes) const;
  void prepare_place() const;
  static void write(Part& part, std::span<const std::byte> bytes);
  static void flush(Part& part);
  static void to_disk(Part& part);
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
