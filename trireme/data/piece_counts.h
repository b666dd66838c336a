// How often each piece of a corpus occurs: what a tokenizer is trained from. Threads count into tables of their own,
// which are added up at the end; the result depends on neither their number nor on timing.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/data/pre_tokenizer.h"

namespace trireme::data {

class PieceCounter {
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Counts = std::unordered_map<std::string, int64_t, Hash, std::equal_to<>>;

 public:
  /// `pre_tokenizer` outlives the counter.
  explicit PieceCounter(const PreTokenizer& pre_tokenizer) : pre_tokenizer_(pre_tokenizer) {}

  /// One thread's way to count: borrows a table.
  class Part {
   public:
    explicit Part(PieceCounter& owner);
    Part(const Part&) = delete;
    ~Part();

    /// Errors    UsageError when the pre-tokenizer's expression gives up
    void add(std::string_view text);

   private:
    PieceCounter& owner_;
    std::unique_ptr<Counts> counts_;
  };

  /// All pieces in the order of their bytes; the counter is empty afterwards. No Part may be left.
  std::vector<std::pair<std::string, int64_t>> take();

 private:
  const PreTokenizer& pre_tokenizer_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Counts>> idle_;
};

}  // namespace trireme::data
