// A token model turns one piece of text into ids, and ids into token strings. BPE, Unigram and WordPiece are such
// models. Everything around the model (added tokens, normalizer, pre-tokenizer, decoder) is the same for all models:
// tokenizer_pipeline.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/text/vocabulary.h"

namespace trireme::text {

/// Buffers and a cache of pieces for one call at a time; never shared between threads.
struct ModelScratch {
  virtual ~ModelScratch() = default;
};

class TokenModel {
 public:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~TokenModel() = default;

  virtual std::unique_ptr<ModelScratch> scratch() const { return std::make_unique<ModelScratch>(); }

  /// Appends the ids of `piece`, which is not empty, to `out`.
  virtual void encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& out) const = 0;

  /// The token's string as the file writes it; empty for ids without a token.
  std::string_view token(int32_t id) const { return vocabulary_.token(id); }
  std::optional<int32_t> id_of(std::string_view token) const { return vocabulary_.find(token); }
  int64_t vocab_size() const { return vocabulary_.size(); }  ///< largest id + 1

 protected:
  Vocabulary vocabulary_;
};

}  // namespace trireme::text
