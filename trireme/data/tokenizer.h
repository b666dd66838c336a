// What turns text into token ids and back. Data preparation, generation and evaluation know only this
// interface; load_tokenizer.h makes one from a model's folder. `decode` returns exact bytes, which may end inside a
// UTF-8 character; show them through a Utf8Stream (utf8_stream.h) when they arrive one id at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// What stands before a text that is encoded by itself. It decides about the space that some tokenizers put in front of
/// a text's first word.
enum class TextBefore {
  nothing,
  token,  ///< a special token, of the same text
  text,  ///< the text goes on here: nothing is put in between
};

struct EncodeOptions {
  /// Special tokens that are written in the text (<|endoftext|>) become their ids. False: they are text like any
  /// other, so that nobody's text can forge a boundary.
  bool parse_special = true;
  /// Without parse_special: tokens that stay text though no file calls them special, such as the marks of a chat
  /// template.
  std::span<const int32_t> as_text = {};
  /// Adds what the tokenizer's template puts around a text, usually the token that begins one.
  bool add_special = false;
  /// Text with bytes that are not UTF-8: all from the last piece before them on is one piece, and special tokens are
  /// not looked for, as tiktoken's _encode_bytes has it. Otherwise such bytes are characters of their own.
  bool tiktoken_bytes = false;
  TextBefore before = TextBefore::nothing;
};

struct DecodeOptions {
  bool skip_special = false;  ///< leave special tokens out
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids of `text`, each in [0, vocab_size()). Any bytes are text; several threads may call at once.
  virtual std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;

  /// The bytes that `ids` stand for. UsageError for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const = 0;

  /// The bytes that `id` adds to a text that has begun, or begins with it: `decode` one id at a time.
  virtual std::string token_bytes(int32_t id, bool is_first = false) const { return decode({&id, 1}); }

  virtual int64_t vocab_size() const = 0;

  /// "byte", "bpe of 49152": for people.
  virtual std::string name() const = 0;

  /// Changes whenever any text could get other ids; part of the data's fingerprint.
  virtual uint64_t fingerprint() const = 0;

  /// Ids that stand between two documents of a corpus.
  virtual std::vector<int32_t> document_separator() const = 0;

  /// The tokens that begin and end a text, where the model has them.
  virtual std::optional<int32_t> bos_id() const { return std::nullopt; }
  virtual std::optional<int32_t> eos_id() const { return std::nullopt; }

  /// The id of a token as the file writes it, special ones included: "<|im_end|>".
  virtual std::optional<int32_t> token_id(std::string_view token) const { return std::nullopt; }

  virtual bool is_special(int32_t id) const { return false; }

  /// True when text may be cut anywhere and encoded in pieces: then files are never held whole in memory.
  virtual bool splits_anywhere() const { return false; }
};

}  // namespace trireme::data
