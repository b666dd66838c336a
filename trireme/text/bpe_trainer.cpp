#include "trireme/text/bpe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>
#include <thread>
#include <unordered_map>

#include "trireme/base/crew.h"
#include "trireme/base/error.h"
#include "trireme/text/byte_alphabet.h"
#include "trireme/text/pair_table.h"
#include "trireme/text/utf8.h"
#include "trireme/text/vocabulary.h"

namespace trireme::text {
namespace {

using Pair = std::pair<int32_t, int32_t>;

// A piece's symbols: a run of `symbols`, which shrinks as they merge.
struct Word {
  size_t begin;
  int32_t size;
  int64_t count;
};

struct Candidate {
  Pair pair;
  int64_t count;
  std::vector<uint32_t> words;  // that got the pair at this time, in ascending order
  size_t age;                   // orders candidates of one pair by time
};

// The largest count first, then the smaller ids.
struct ComesLater {
  bool operator()(const Candidate& a, const Candidate& b) const {
    if (a.count != b.count) return a.count < b.count;
    if (a.pair != b.pair) return a.pair > b.pair;
    return a.age > b.age;
  }
};

class Trainer {
 public:
  Trainer(const std::vector<std::pair<std::string, int64_t>>& pieces, const BpeTrainerOptions& options)
      : options_(options) {
    const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    threads_ = static_cast<size_t>(options.threads > 0 ? options.threads : cores);
    add_first_tokens();
    add_words(pieces);
  }

  TrainedBpe run() {
    find_pairs();
    const auto first = static_cast<int64_t>(trained_.tokens.size());
    while (static_cast<int64_t>(trained_.tokens.size()) < options_.vocab_size && !queue_.empty()) {
      Candidate best = std::move(const_cast<Candidate&>(queue_.top()));  // popped at once
      queue_.pop();
      const int64_t count = counts_[best.pair];
      if (best.count != count) {
        best.count = count;
        queue_.push(std::move(best));
        continue;
      }
      if (count < 1 || count < options_.min_frequency) break;
      merge(best);
      const auto size = static_cast<int64_t>(trained_.tokens.size());
      if (size % 64 == 0)
        options_.progress(static_cast<double>(size - first) / static_cast<double>(options_.vocab_size - first));
    }
    keep_last_of_equal_merges();
    return std::move(trained_);
  }

 private:
  struct Change {
    Pair pair;
    int64_t count;
    uint32_t word;
  };

  void add_first_tokens() {
    trained_.special_tokens = options_.special_tokens;
    for (const std::string& token : options_.special_tokens)
      if (token.empty() || !add_token(token))
        throw UsageError(fmt::format("the special token '{}' is {}", token, token.empty() ? "empty" : "named twice"));
    std::array<std::pair<char32_t, size_t>, 256> letters;
    for (size_t byte = 0; byte < 256; ++byte) letters[byte] = {letter_of_byte(static_cast<unsigned char>(byte)), byte};
    std::sort(letters.begin(), letters.end());  // the order of ids in PyPI's tokenizers
    for (const auto& [letter, byte] : letters) {
      std::string token;
      append_utf8(token, letter);
      add_token(token);
      id_of_byte_[byte] = id_of_.at(token);
    }
    constexpr int64_t kMost = kLargestTokenId + 1;
    const auto least = static_cast<int64_t>(trained_.tokens.size());
    if (options_.vocab_size < least || options_.vocab_size > kMost)
      throw UsageError(
          fmt::format("a vocabulary cannot have {} tokens: {} special tokens and 256 bytes need {}, and {} are the "
                      "most; give another --vocab_size",
                      options_.vocab_size, options_.special_tokens.size(), least, kMost));
  }

  bool add_token(const std::string& token) {
    const bool is_new = id_of_.emplace(token, static_cast<int32_t>(trained_.tokens.size())).second;
    if (is_new) trained_.tokens.push_back(token);
    return is_new;
  }

  void add_words(const std::vector<std::pair<std::string, int64_t>>& pieces) {
    size_t bytes = 0;
    for (const auto& [piece, count] : pieces) bytes += piece.size();
    symbols_.reserve(bytes);
    words_.reserve(pieces.size());
    for (const auto& [piece, count] : pieces) {
      words_.push_back({symbols_.size(), static_cast<int32_t>(piece.size()), count});
      for (const char byte : piece) symbols_.push_back(id_of_byte_[static_cast<unsigned char>(byte)]);
    }
  }

  void find_pairs() {
    std::vector<Change> changes;
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const Word& word = words_[w];
      const int32_t* at = symbols_.data() + word.begin;
      for (int32_t i = 0; i + 1 < word.size; ++i) changes.push_back({{at[i], at[i + 1]}, word.count, w});
      if (changes.size() > kManyChanges) apply(changes);
    }
    apply(changes);
    queue_new_pairs();
  }

  void apply(std::vector<Change>& changes) {
    for (const Change& change : changes) {
      counts_[change.pair] += change.count;
      if (change.count < 0) continue;
      std::vector<uint32_t>& places = new_places_[change.pair];
      if (places.empty() || places.back() != change.word) places.push_back(change.word);
    }
    changes.clear();
  }

  void queue_new_pairs() {
    for (auto& [pair, places] : new_places_) {
      const int64_t count = counts_[pair];
      if (count > 0) queue_.push({pair, count, std::move(places), ++age_});
    }
    new_places_.clear();
  }

  void merge(const Candidate& best) {
    const auto [left, right] = best.pair;
    const std::string token = trained_.tokens[static_cast<size_t>(left)] + trained_.tokens[static_cast<size_t>(right)];
    add_token(token);
    trained_.merges.push_back(best.pair);
    const int32_t merged = id_of_.at(token);
    std::vector<std::vector<Change>> changes(best.words.size() < kManyWords ? 1 : threads_);
    const auto work = [&](size_t part) {
      const size_t n = best.words.size(), parts = changes.size();
      for (size_t i = n * part / parts; i < n * (part + 1) / parts; ++i)
        merge_in(best.words[i], best.pair, merged, changes[part]);
    };
    {
      base::Crew others(changes.size() - 1, [&](size_t part) { work(part + 1); });
      work(0);
      others.join();
    }
    for (std::vector<Change>& part : changes) apply(part);
    queue_new_pairs();
  }

  void merge_in(uint32_t index, Pair pair, int32_t merged, std::vector<Change>& changes) {
    Word& word = words_[index];
    int32_t* at = symbols_.data() + word.begin;
    int32_t kept = 0;
    for (int32_t i = 0; i < word.size; ++i) {
      if (at[i] != pair.first || i + 1 == word.size || at[i + 1] != pair.second) {
        at[kept++] = at[i];
        continue;
      }
      if (kept > 0) {
        changes.push_back({{at[kept - 1], pair.first}, -word.count, index});
        changes.push_back({{at[kept - 1], merged}, word.count, index});
      }
      if (i + 2 < word.size) {
        changes.push_back({{pair.second, at[i + 2]}, -word.count, index});
        changes.push_back({{merged, at[i + 2]}, word.count, index});
      }
      at[kept++] = merged;
      ++i;
    }
    word.size = kept;
  }

  // A string may be made of tokens in several ways. A pair that came up twice keeps its last rank, as PyPI's trainer
  // does.
  void keep_last_of_equal_merges() {
    PairTable<bool> seen;
    std::vector<Pair> kept;
    for (size_t i = trained_.merges.size(); i-- > 0;) {
      bool& is_seen = seen[trained_.merges[i]];
      if (!is_seen) kept.push_back(trained_.merges[i]);
      is_seen = true;
    }
    trained_.merges.assign(kept.rbegin(), kept.rend());
  }

  static constexpr size_t kManyChanges = 1 << 20, kManyWords = 20000;

  const BpeTrainerOptions& options_;
  size_t threads_ = 1;
  TrainedBpe trained_;
  std::unordered_map<std::string, int32_t> id_of_;
  std::array<int32_t, 256> id_of_byte_{};
  std::vector<int32_t> symbols_;
  std::vector<Word> words_;
  PairTable<int64_t> counts_;
  PairTable<std::vector<uint32_t>> new_places_;
  std::priority_queue<Candidate, std::vector<Candidate>, ComesLater> queue_;
  size_t age_ = 0;
};

}  // namespace

TrainedBpe train_bpe(const std::vector<std::pair<std::string, int64_t>>& pieces, const BpeTrainerOptions& options) {
  return Trainer(pieces, options).run();
}

}  // namespace trireme::text
