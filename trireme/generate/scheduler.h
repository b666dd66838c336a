// Scheduler: which new tokens the next run of the list computes. It is a pure function of the requests and of the
// tokens that were drawn: all ranks of a copy of the model make the same choices without a word.
//
// A request waits until a place among the texts and all pages that it can ever need are free. So a text that has begun
// never waits for memory. Requests begin in their order. Equal prompts are read once: those that follow share its whole
// pages, and copy the last one. A run takes one token of every text that is being written, then tokens of prompts.
//
// Pipeline stages work in rounds: while the tokens of one run are on their way from the last stage, the first stage
// begins the next one with other texts. So a run has no more than its share of the texts.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/generate/pages.h"
#include "trireme/generate/request.h"

namespace trireme::generate {

struct Limits {
  int64_t rows = 1;  ///< new tokens of a run
  int64_t logit_rows = 1;  ///< of these, rows with logits
  int64_t pages = 1;  ///< of the cache, as many tokens each as a page has
  int64_t page_tokens = 128;
  int64_t texts = 1;  ///< at a time
  int64_t context = 1;  ///< positions of the model
  std::string positions = {};  ///< of the model, for messages: ModelConfig::generation_positions; "": `context`
  bool whole_prompts = false;  ///< a prompt is read in one run, and shared with no other (Free Transformer)
  int64_t rounds = 1;  ///< runs that are under way at the same time: pipeline stages

  /// The last tokens with which a text goes on that has become too long and slides.
  int64_t slid() const { return std::max<int64_t>(1, context / 2); }
};

/// Tokens in the cache that other requests begin with: a prompt that several have, or a text that was parked.
struct Prefix {
  std::vector<int64_t> tokens;
  std::vector<int32_t> pages;  ///< empty until it has been read
  int64_t waiting = 0;  ///< requests that will begin with it
  bool being_read = false;
};

/// A text that is being read or written.
struct Text {
  int64_t id = 0;
  Request request;
  std::vector<int64_t> tokens;  ///< the prompt, and the new ones; if they are judged, all but the last
  int64_t cached = 0;  ///< of these, tokens in the cache
  int64_t prompt = 0;  ///< of these, tokens that were not drawn, or that are read again since the text has slid
  int64_t drawn = 0;  ///< new tokens, also those that have slid away
  std::vector<int32_t> pages;
  int64_t reserved = 0;  ///< further pages that nobody else gets
  int64_t common = 0;  ///< tokens from the first on that other requests may begin with, too
  Prefix* reads_for = nullptr;  ///< what the others wait for
  std::vector<double> judged;
  bool is_greedy = true;  ///< each judged token is the likeliest
  bool is_awaited = false;  ///< what a run says of it is on its way; it takes part in no other
};

/// New tokens of a text in a run: those from `cached` on.
struct Part {
  Text* text;
  int64_t tokens;
  int64_t first_wanted;  ///< of these tokens, the first whose logits are wanted; `tokens`: none
  bool is_awaited;  ///< the text goes on only when the results of this run are known
};

/// Copies a page. Who copies it writes over the tokens that are not its own.
using CopyPage = std::function<void(int32_t from, int32_t to)>;

class Scheduler {
 public:
  explicit Scheduler(const Limits& limits) : limits_(limits), pages_(limits.pages) {}

  /// Errors    UsageError if the request can never run: no tokens, beyond the model's positions, or beyond the cache
  void check(const Request& request) const;
  /// Errors    as check()
  int64_t add(Request request);

  /// Lets requests begin, and chooses the parts of the next run; none: all is done. `copy` is called for
  /// pages whose tokens must be copied before the run.
  std::vector<Part> next(const CopyPage& copy);
  /// The run has been computed here: the tokens of its parts are in the cache.
  void ran(const std::vector<Part>& parts);
  /// The results of the text's run are known. append() or finish() may follow.
  void arrived(const Part& part) { part.text->is_awaited = false; }
  /// Adds a drawn token to a text.
  void append(Text& text, int64_t token);
  void finish(Text& text);
  /// Ends all texts, and those that wait.
  void clear();

  bool idle() const { return waiting_.empty() && texts_.empty(); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_texts() const { return static_cast<int64_t>(texts_.size()); }
  int64_t free_pages() const { return pages_.num_free(); }
  int64_t pages_for(int64_t tokens) const { return (tokens + limits_.page_tokens - 1) / limits_.page_tokens; }
  const Limits& limits() const { return limits_; }

 private:
  int64_t most_tokens(const Request& request) const;
  bool begin_next(const CopyPage& copy);
  void keep_prefix(const Text& text, Prefix& prefix, int64_t tokens);
  void take_page(Text& text);
  void drop(Prefix& prefix);
  void drop_unused();

  Limits limits_;
  Pages pages_;
  int64_t reserved_ = 0;  ///< pages that texts still have a right to
  int64_t next_id_ = 0;
  std::deque<std::unique_ptr<Text>> waiting_;
  std::vector<std::unique_ptr<Text>> texts_;  ///< in the order in which they began
  std::map<std::vector<int64_t>, Prefix> prompts_;
  Prefix parked_;
};

}  // namespace trireme::generate
