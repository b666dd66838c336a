// What turns one piece of text into ids, and ids into token strings: BPE, Unigram, WordPiece. Everything around it
// (added tokens, normalizer, pre-tokenizer, decoder) is the same for all of them: tokenizer_pipeline.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// What one call at a time needs beside the model: buffers and a cache of pieces. Never shared between threads.
struct ModelScratch {
  virtual ~ModelScratch() = default;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;

  virtual std::unique_ptr<ModelScratch> scratch() const { return std::make_unique<ModelScratch>(); }

  /// Appends the ids of `piece`, which is not empty, to `out`.
  virtual void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const = 0;

  /// The token's string as the file has it; empty for ids between the known ones.
  virtual std::string_view token(int32_t id) const = 0;
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;

  virtual int64_t vocab_size() const = 0;  ///< largest id + 1
};

}  // namespace trireme::data
