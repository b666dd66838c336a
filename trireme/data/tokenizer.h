// What turns text into token ids and back. Data preparation, generation and evaluation know only this
// interface. `decode` returns exact bytes, which may end inside a UTF-8 character; show them through a
// Utf8Stream (utf8_stream.h) when they arrive one id at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Ids of `text`, each in [0, vocab_size()).
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;

  /// The bytes that `ids` stand for. UsageError for an id outside the vocabulary.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  virtual int64_t vocab_size() const = 0;

  /// "byte", "gpt2": for people.
  virtual std::string name() const = 0;

  /// Changes whenever any text could get other ids; part of the data's fingerprint.
  virtual uint64_t fingerprint() const = 0;

  /// Ids that stand between two documents of a corpus.
  virtual std::vector<int32_t> document_separator() const = 0;

  /// True when text may be cut anywhere and encoded in pieces: then files are never held whole in memory.
  virtual bool splits_anywhere() const { return false; }
};

}  // namespace trireme::data
