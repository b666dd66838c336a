// Learns the merges of a byte-level BPE: again and again the pair of neighbours that occurs most often becomes a token.
// The same merges as the trainer of PyPI's tokenizers, ties included (equal counts: the pair with the smaller ids), for
// the same pieces (piece_counts.h).
//
// A pair's places are kept from when it first occurs, so that a merge visits only the words it changes; counts in the
// queue may be out of date and are corrected when they come up.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace trireme::data {

struct BpeTrainerOptions {
  int64_t vocab_size = 32000;  ///< of all tokens: special ones, 256 bytes, merges
  int64_t min_frequency = 2;  ///< pairs that occur less often do not merge
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  ///< ids from 0 on
  int threads = 0;  ///< 0: one a core; the result does not depend on it
  std::function<void(double done)> progress = [](double) {};
};

struct TrainedBpe {
  std::vector<std::string> special_tokens;
  std::vector<std::string> tokens;  ///< by id, in GPT-2's alphabet (byte_alphabet.h), special ones as they are
  std::vector<std::pair<int32_t, int32_t>> merges;  ///< in the order of their ranks
};

/// `pieces` with how often each occurs.
///
/// Cost      about 30 bytes of memory a byte of distinct pieces; the first merges visit most pieces, later ones few
/// Numerics  the same pieces give the same merges, whatever their order and the number of threads
/// Errors    UsageError: vocab_size has no room for special tokens and bytes, or is above 2^20; a special token
/// twice
TrainedBpe train_bpe(const std::vector<std::pair<std::string, int64_t>>& pieces, const BpeTrainerOptions& options);

}  // namespace trireme::data
