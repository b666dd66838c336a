// How often each piece of a corpus occurs: what a tokenizer is trained from. Texts come one after another and are cut
// and counted on all threads; the result depends on neither their number nor on timing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/data/pre_tokenizer.h"

namespace trireme::data {

class PieceCounter {
 public:
  /// `threads` 0: one a core. `pre_tokenizer` outlives the counter.
  explicit PieceCounter(const PreTokenizer& pre_tokenizer, int threads = 0);

  /// One document. Cost      kept until kBatchBytes have come, then all of them are counted
  /// Errors    UsageError when the pre-tokenizer's expression gives up
  void add(std::string text);

  /// All pieces in the order of their bytes; the counter is empty afterwards.
  std::vector<std::pair<std::string, int64_t>> take();

 private:
  static constexpr size_t kBatchBytes = size_t{32} << 20;
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Counts = std::unordered_map<std::string, int64_t, Hash, std::equal_to<>>;

  void count_batch();
  void count(std::string_view text, Counts& counts) const;

  const PreTokenizer& pre_tokenizer_;
  std::vector<Counts> counts_;  // one a thread
  std::vector<std::string> batch_;
  size_t batch_bytes_ = 0;
};

/// Where `text` may be cut near `wish` without changing a piece of the pre-tokenizers that are known: behind a line's
/// end between two characters that are no spaces. text.size() when there is no such place.
size_t place_to_cut(std::string_view text, size_t wish);

}  // namespace trireme::data
