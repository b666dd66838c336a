// A PackedDataset puts whole documents into rows of `sequence` tokens. A document of n tokens takes n - 1 places,
// because its last token is only a target and its first one only an input. A document longer than a row is cut, and its
// parts are packed like documents, unless LongDocuments says otherwise. The rest of a row is padding. Every token but a
// document's first is a target exactly once an epoch. Parts without a token to learn are left out.
//
// Method (fixed: changing it changes every run's data order): best-fit decreasing. Documents are taken by length,
// longest first; equally long ones keep their order. Each goes into the row with the least room in which it fits.
// Source: Johnson et al., Worst-case performance bounds for simple one-dimensional packing algorithms (1974); for
// training Ding et al., Fewer truncations improve language modeling (2024)
#pragma once

#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/data/token_range.h"

namespace trireme::data {

/// What becomes of a document that is longer than a row: all of its parts stay, the first one, or none.
enum class LongDocuments { parts, cut, dropped };

struct PackingOptions {
  int64_t sequence = 1;
  bool share_rows = true;  ///< false: every document has a row of its own
  LongDocuments long_documents = LongDocuments::parts;
};

class PackedDataset final : public Dataset {
 public:
  /// Cost      16 bytes for each document and 8 for each row; reads the mask where there is one
  /// Errors    UsageError if no document has a token to learn. If long ones were dropped, there is no sample instead.
  PackedDataset(TokenRange tokens, PackingOptions options);

  int64_t num_samples() const override { return static_cast<int64_t>(first_piece_.size()) - 1; }
  int64_t sequence() const override { return options_.sequence; }
  void sample(int64_t epoch, int64_t index, SampleView out) const override;
  int64_t supervised_tokens(int64_t epoch, int64_t index) const override;
  std::vector<SampleOrigin> describe(int64_t epoch, int64_t index) const override;

  /// Places that hold a token of a document.
  int64_t num_places() const { return num_places_; }

  /// Documents that are longer than a row.
  int64_t num_long() const { return num_long_; }

 private:
  struct Piece {
    int64_t first;  // token of the range
    int64_t count;  // inputs
  };
  std::vector<Piece> cut();
  std::span<const Piece> pieces_of(int64_t row) const;

  TokenRange tokens_;
  PackingOptions options_;
  std::vector<Piece> pieces_;  // by row
  std::vector<int64_t> first_piece_;  // by row; at the end, the number of pieces
  int64_t num_places_ = 0, num_long_ = 0;
};

}  // namespace trireme::data
