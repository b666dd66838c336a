// The figures of a tokenized set that `trireme data stats` shows.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include "trireme/data/token_set.h"

namespace trireme::data {

inline constexpr std::array<int, 7> kLengthPercentiles = {0, 5, 25, 50, 75, 95, 100};

struct TokenStats {
  int64_t documents = 0;
  int64_t tokens = 0;
  int64_t supervised_tokens = 0;
  int64_t empty_documents = 0;
  double mean_length = 0;  ///< tokens of a document
  std::array<int64_t, kLengthPercentiles.size()> lengths{};  ///< at kLengthPercentiles: the smallest length that so
                                                             ///< many percent of the documents do not exceed
  int64_t largest_id = -1;  ///< -1 when there are no tokens
  int64_t distinct_ids = 0;  ///< of ids below 2^24
  int64_t negative_ids = 0;
  int64_t ids_outside = 0;  ///< beyond the vocabulary, or beyond all vocabularies if its size is not known
  int64_t mask_outside = 0;  ///< bytes of the mask that are neither 0 nor 1
  std::optional<int64_t> unknown_tokens;  ///< if `unknown_id` is given
  std::optional<uint64_t> fingerprint;  ///< of the files; the sidecar's has to be equal. Empty without a sidecar
};

/// Reads all tokens once. `unknown_id` is the tokenizer's token for unknown text. `progress` gets the share done.
///
/// Memory    8 bytes a document, and 2 MiB
TokenStats token_stats(const TokenSet& set, std::optional<int64_t> unknown_id = {},
                       const std::function<void(double)>& progress = {});

}  // namespace trireme::data
