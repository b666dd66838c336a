#include "trireme/generate/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::generate {

namespace {

std::vector<int64_t> key_of(const Text& text) {
  return {text.tokens.begin(), text.tokens.begin() + std::min(text.common, std::ssize(text.tokens))};
}

}  // namespace

/// Tokens that a text has in the cache at most.
int64_t Scheduler::most_tokens(const Request& r) const {
  return std::min(limits_.context,
                  std::ssize(r.tokens) + std::clamp<int64_t>(r.max_new_tokens - 1, 0, limits_.context));
}

namespace {

/// Tokens that are read: of those that are judged, the last one is not.
int64_t read_tokens(const Request& request) { return std::ssize(request.tokens) - (request.judged_from ? 1 : 0); }

}  // namespace

void Scheduler::check(const Request& request) const {
  const int64_t length = read_tokens(request);
  if (length == 0 && request.judged_from) throw UsageError("a text of one token has nothing to judge");
  if (length <= 0) throw UsageError("the prompt is empty: give at least one token to start from");
  if (length > limits_.context && !request.slides)
    throw UsageError(fmt::format(
        "the prompt has {} tokens, and {}; shorten it", length,
        limits_.positions.empty() ? fmt::format("the model has {} positions", limits_.context) : limits_.positions));
  if (const int64_t pages = pages_for(most_tokens(request)); pages > limits_.pages)
    throw UsageError(
        fmt::format("the cache holds {} tokens, and this text needs {}; make it larger, or write fewer tokens",
                    limits_.pages * limits_.page_tokens, pages * limits_.page_tokens));
  if (limits_.whole_prompts && std::min(length, limits_.context) > limits_.rows)
    throw UsageError(
        fmt::format("the encoder reads a prompt at once: {} tokens, and a run has room for {}", length, limits_.rows));
}

int64_t Scheduler::add(Request request) {
  check(request);
  const int64_t length = read_tokens(request);
  auto text = std::make_unique<Text>();
  text->id = next_id_++;
  text->tokens.assign(request.tokens.begin(), request.tokens.begin() + length);
  if (length > limits_.context) text->tokens.erase(text->tokens.begin(), text->tokens.end() - limits_.slid());
  text->prompt = std::ssize(text->tokens);
  text->common = request.judged_from ? std::clamp<int64_t>(*request.judged_from - 1, 0, length) : length;
  if (!limits_.whole_prompts && text->common > 0) {
    Prefix& prefix = prompts_[key_of(*text)];
    prefix.tokens = key_of(*text);
    ++prefix.waiting;
  }
  text->request = std::move(request);
  waiting_.push_back(std::move(text));
  return waiting_.back()->id;
}

// A text takes over pages for tokens that it need not read again. The last one it reads, because its logits are wanted.
bool Scheduler::begin_next(const CopyPage& copy) {
  if (waiting_.empty() || num_texts() >= limits_.texts) return false;
  Text& text = *waiting_.front();
  const auto found = prompts_.find(key_of(text));
  Prefix* const own = found == prompts_.end() ? nullptr : &found->second;
  if (own != nullptr && own->being_read) return false;
  const auto begins_with = [&](const Prefix& p) {
    return !p.pages.empty() && p.tokens.size() <= text.tokens.size() &&
           std::equal(p.tokens.begin(), p.tokens.end(), text.tokens.begin());
  };
  Prefix* const prefix = own != nullptr && !own->pages.empty()            ? own
                         : !limits_.whole_prompts && begins_with(parked_) ? &parked_
                                                                          : nullptr;
  const int64_t common =
      prefix == nullptr
          ? 0
          : std::min({std::ssize(prefix->tokens), std::ssize(text.tokens) - 1,
                      text.request.judged_from ? std::max<int64_t>(0, *text.request.judged_from - 1) : INT64_MAX});
  const int64_t whole = common / limits_.page_tokens, needed = pages_for(most_tokens(text.request)) - whole;
  if (needed > pages_.num_free() - reserved_) return false;
  for (int64_t i = 0; i < whole; ++i) {
    pages_.share(prefix->pages[static_cast<size_t>(i)]);
    text.pages.push_back(prefix->pages[static_cast<size_t>(i)]);
  }
  text.reserved = needed;
  reserved_ += needed;
  if (common % limits_.page_tokens != 0) {
    copy(prefix->pages[static_cast<size_t>(whole)], pages_.free_page());
    take_page(text);
  }
  text.cached = common;
  if (own != nullptr) {
    --own->waiting;
    if (prefix != own && own->waiting > 0) own->being_read = true, text.reads_for = own;
  }
  texts_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  if (prefix == &parked_) drop(parked_);
  drop_unused();
  return true;
}

void Scheduler::take_page(Text& text) {
  check_invariant(text.reserved > 0, "a text takes pages that are reserved for it");
  text.pages.push_back(pages_.take());
  --text.reserved, --reserved_;
}

void Scheduler::drop(Prefix& prefix) {
  for (const int32_t page : prefix.pages) pages_.leave(page);
  prefix.pages.clear();
}

void Scheduler::drop_unused() {
  for (auto it = prompts_.begin(); it != prompts_.end();) {
    if (it->second.waiting > 0) {
      ++it;
      continue;
    }
    drop(it->second);
    it = prompts_.erase(it);
  }
}

std::vector<Part> Scheduler::next(const CopyPage& copy) {
  while (begin_next(copy)) {
  }
  if (texts_.empty() && !waiting_.empty()) {  // what is kept for others leaves no room
    drop(parked_);
    for (auto& [tokens, prefix] : prompts_) drop(prefix), prefix.being_read = false;
    while (begin_next(copy)) {
    }
    check_invariant(!texts_.empty(), "a request that fits into the cache begins when nothing else is there");
  }
  std::vector<Part> parts;
  int64_t rows = limits_.rows, logit_rows = limits_.logit_rows;
  const int64_t share = (num_texts() + limits_.rounds - 1) / limits_.rounds;
  for (const bool reading : {false, true})
    for (const auto& text : texts_) {
      if (std::ssize(parts) == share) break;
      const int64_t length = std::ssize(text->tokens), left = length - text->cached;
      if ((left > 1) != reading || text->is_awaited) continue;
      int64_t count = std::min(left, rows);
      if (limits_.whole_prompts && count < left) continue;
      int64_t first = count;  // of the wanted ones
      if (text->request.judged_from) {
        const int64_t wanted = std::max<int64_t>(0, *text->request.judged_from - 1);
        first = std::clamp<int64_t>(wanted - text->cached, 0, count);
        count = std::min(count, first + logit_rows);
      } else if (text->cached + count == length) {
        if (logit_rows == 0) continue;
        first = count - 1;
      }
      if (count == 0) continue;
      parts.push_back({text.get(), count, first, first < count || text->cached + count == length});
      rows -= count;
      logit_rows -= count - first;
      while (pages_for(text->cached + count) > std::ssize(text->pages)) take_page(*text);
    }
  return parts;
}

void Scheduler::keep_prefix(const Text& text, Prefix& prefix, int64_t tokens) {
  drop(prefix);
  prefix.tokens.assign(text.tokens.begin(), text.tokens.begin() + tokens);
  prefix.pages.assign(text.pages.begin(), text.pages.begin() + pages_for(tokens));
  for (const int32_t page : prefix.pages) pages_.share(page);
}

void Scheduler::ran(const std::vector<Part>& parts) {
  for (const Part& part : parts) {
    Text& text = *part.text;
    text.cached += part.tokens;
    text.is_awaited = part.is_awaited;
    if (text.reads_for == nullptr || text.cached < text.common) continue;
    text.reads_for->being_read = false;
    keep_prefix(text, *text.reads_for, text.common);
    text.reads_for = nullptr;
  }
}

void Scheduler::append(Text& text, int64_t token) {
  text.tokens.push_back(token);
  ++text.drawn;
  if (std::ssize(text.tokens) <= limits_.context) return;
  text.tokens.erase(text.tokens.begin(), text.tokens.end() - limits_.slid());
  text.prompt = std::ssize(text.tokens);
  text.cached = 0;
  check_invariant(limits_.texts == 1, "only a text that has the cache alone slides");
  text.reserved += std::ssize(text.pages), reserved_ += std::ssize(text.pages);
  for (const int32_t page : text.pages) pages_.leave(page);
  text.pages.clear();
}

void Scheduler::finish(Text& text) {
  if (text.reads_for != nullptr) text.reads_for->being_read = false;  // it ends before it has read it
  if (text.request.parks && text.cached > 0) keep_prefix(text, parked_, text.cached);
  for (const int32_t page : text.pages) pages_.leave(page);
  reserved_ -= text.reserved;
  std::erase_if(texts_, [&](const auto& t) { return t.get() == &text; });
}

void Scheduler::clear() {
  while (!texts_.empty()) finish(*texts_.back());
  waiting_.clear();
  for (auto& [tokens, prefix] : prompts_) drop(prefix);
  prompts_.clear();
}

}  // namespace trireme::generate
