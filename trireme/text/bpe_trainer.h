// Learns the merges of a byte-level BPE: the most frequent pair of neighbours becomes a token, again and again. For the
// same pieces (piece_counts.h) it learns the same merges as the trainer of PyPI's tokenizers. Of equal counts, both
// take the pair with the smaller ids.
//
// The trainer records the places of every pair, so a merge visits only the pieces that it changes. Counts in the
// priority queue may be outdated. They are corrected when they reach the front.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::text {

struct BpeTrainerOptions {
  int64_t vocab_size = 32000;  ///< number of all tokens: special tokens, 256 bytes, merges
  int64_t min_frequency = 2;  ///< pairs that occur less often do not merge
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  ///< get the ids from 0 on
  int threads = 0;  ///< 0: one per core; the result does not depend on it
  std::function<void(double done)> progress = [](double) {};
};

struct TrainedBpe {
  std::vector<std::string> special_tokens;
  std::vector<std::string> tokens;  ///< by id, in GPT-2's alphabet (byte_alphabet.h); special tokens as they are
  std::vector<std::pair<int32_t, int32_t>> merges;  ///< in the order of their ranks
};

/// Each of `pieces` comes with its count.
///
/// Cost      about 30 bytes of memory for each byte of distinct pieces; first merges visit most pieces, later ones few
/// Numerics  the same pieces give the same merges, whatever their order and the number of threads
/// Errors    UsageError: vocab_size is above 2^20 or too small for special tokens and bytes; a special token twice
TrainedBpe train_bpe(const std::vector<std::pair<std::string, int64_t>>& pieces, const BpeTrainerOptions& options);

}  // namespace trireme::text
