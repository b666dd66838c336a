// Counts how often each piece of a corpus occurs: the input of a tokenizer's training. Each thread counts in a table of
// its own, and the tables are added up at the end. The result depends neither on the number of threads nor on timing.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/text/pre_tokenizer.h"
#include "trireme/text/vocabulary.h"

namespace trireme::text {

class PieceCounter {
  using Counts = std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>>;

 public:
  /// `pre_tokenizer` must outlive the counter.
  explicit PieceCounter(const PreTokenizer& pre_tokenizer) : pre_tokenizer_(pre_tokenizer) {}

  /// Counts in one thread, with a table of its own.
  class Part {
   public:
    explicit Part(PieceCounter& owner);
    Part(const Part&) = delete;
    ~Part();

    /// Errors    UsageError if the pre-tokenizer's expression uses up its budget of steps (regex.h)
    void add(std::string_view text);

   private:
    PieceCounter& owner_;
    std::unique_ptr<Counts> counts_;
  };

  /// All pieces in the order of their bytes. No Part may exist during the call. The counter is empty afterwards.
  std::vector<std::pair<std::string, int64_t>> take();

 private:
  const PreTokenizer& pre_tokenizer_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Counts>> idle_;
};

}  // namespace trireme::text
