// Turns text into token ids and back. Data preparation, generation and evaluation know only this interface;
// load_tokenizer.h makes one from a model's folder. `decode` returns exact bytes, which may end inside a UTF-8
// character: print ids that arrive one at a time through a Utf8Stream (utf8.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text {

/// What comes before a text that is encoded by itself. Some tokenizers put a space before a text's first word.
/// TextBefore decides whether they do.
enum class TextBefore {
  nothing,
  token,  ///< a special token of the same text
  text,   ///< other text: no space is put in between
};

struct EncodeOptions {
  /// Special tokens in the text (<|endoftext|>) become their ids. False: they are ordinary text, so that no text can
  /// forge a boundary.
  bool parse_special = true;
  /// Ids of more tokens that stay text without parse_special, such as the marks of a chat template. A tokenizer's file
  /// need not call these marks special.
  std::span<const int32_t> as_text = {};
  /// Adds what the tokenizer's template puts around a text, usually the token that begins one.
  bool add_special = false;
  /// Encodes text with bytes that are not UTF-8 as tiktoken's _encode_bytes does: the last piece before such bytes and
  /// all text after it are one piece, and special tokens are not searched for. False: each such byte is a character of
  /// its own.
  bool tiktoken_bytes = false;
  TextBefore before = TextBefore::nothing;
};
/// For whole texts that are no conversations: as transformers and TRL encode them. Messages of conversations are
/// encoded by ChatEncoder, so that nobody can forge the end of one.
constexpr EncodeOptions kWholeText{.parse_special = true, .add_special = true};

struct DecodeOptions {
  bool skip_special = false;  ///< leave special tokens out
  /// The ids are a model's own. Its vocabulary may be padded: ids behind the tokenizer's are left out, as in
  /// transformers.
  bool drawn = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids of `text`, each in [0, vocab_size()). Any bytes are text; several threads may call at once.
  virtual std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;

  /// The bytes that `ids` stand for. UsageError for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const = 0;

  /// `decode` for one id of a model at a time: the bytes that `id` adds to a text. `is_first`: the text begins with
  /// this id.
  virtual std::string token_bytes(int32_t id, bool is_first = false) const { return decode({&id, 1}, {.drawn = true}); }

  virtual int64_t vocab_size() const = 0;

  /// A name for people: "byte", "bpe of 49152".
  virtual std::string name() const = 0;

  /// Differs if any text could get other ids. It is a part of the data's fingerprint.
  virtual uint64_t fingerprint() const = 0;

  /// Ids between two documents of a corpus.
  virtual std::vector<int32_t> document_separator() const = 0;

  /// The tokens that begin and end a text, if the model has them.
  virtual std::optional<int32_t> bos_id() const { return std::nullopt; }
  virtual std::optional<int32_t> eos_id() const { return std::nullopt; }

  /// The id of a token as the file writes it, special ones included: "<|im_end|>".
  virtual std::optional<int32_t> token_id(std::string_view token) const { return std::nullopt; }

  /// The way back: a token as the file writes it, also one that decodes to nothing. Empty: there is none.
  virtual std::string token_content(int32_t id) const { return {}; }

  virtual bool is_special(int32_t id) const { return false; }

  /// True if text may be cut anywhere and encoded in pieces. Files are then never held whole in memory.
  virtual bool splits_anywhere() const { return false; }
};

}  // namespace trireme::text
