// The scheduler alone, with an engine that only counts: every token of every text is read once, in its order, into
// pages that no other text writes.
#include "trireme/generate/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>

#include "trireme/base/error.h"

namespace trireme::generate {
namespace {

/// Keeps what a cache would hold: (page, place) -> (token, position).
class Machine {
 public:
  explicit Machine(const Limits& limits) : limits_(limits), scheduler_(limits) {}

  Scheduler& scheduler() { return scheduler_; }

  /// Begins a run, and finishes the oldest one where there is none to begin or all rounds are under way.
  bool run() {
    std::vector<Part> parts = scheduler_.next([&](int32_t from, int32_t to) {
      for (int64_t i = 0; i < limits_.page_tokens; ++i)
        if (cache_.contains({from, i})) cache_[{to, i}] = cache_[{from, i}];
    });
    const bool begins = !parts.empty();
    if (begins) begin(std::move(parts));
    if (under_way_.empty()) return false;
    if (!begins || std::ssize(under_way_) == limits_.rounds) {
      finish(under_way_.front());
      under_way_.pop_front();
    }
    return true;
  }

  int64_t read_ = 0, finished_ = 0, runs_ = 0, most_texts_ = 0, most_parts_ = 0;
  std::map<int64_t, int64_t> judged_;
  std::vector<int64_t> order_;

 private:
  void begin(std::vector<Part> parts) {
    ++runs_;
    most_parts_ = std::max(most_parts_, std::ssize(parts));
    int64_t rows = 0, logit_rows = 0;
    for (const Part& part : parts) {
      const Text& text = *part.text;
      for (const auto& other : under_way_)
        for (const Part& awaited : other) EXPECT_FALSE(awaited.is_awaited && awaited.text == part.text);
      rows += part.tokens, logit_rows += part.tokens - part.first_wanted;
      EXPECT_GT(part.tokens, 0);
      for (int64_t i = text.cached; i < text.cached + part.tokens; ++i)
        cache_[{text.pages.at(static_cast<size_t>(i / limits_.page_tokens)), i % limits_.page_tokens}] = {
            text.tokens[static_cast<size_t>(i)], i};
      for (int64_t i = 0; i < text.cached + part.tokens; ++i)  // what attention reads
        EXPECT_EQ((cache_[{text.pages.at(static_cast<size_t>(i / limits_.page_tokens)), i % limits_.page_tokens}]),
                  std::pair(text.tokens[static_cast<size_t>(i)], i));
      read_ += part.tokens;
    }
    EXPECT_LE(rows, limits_.rows);
    EXPECT_LE(logit_rows, limits_.logit_rows);
    most_texts_ = std::max(most_texts_, scheduler_.num_texts());
    scheduler_.ran(parts);
    under_way_.push_back(std::move(parts));
  }

  void finish(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      if (!part.is_awaited) continue;
      scheduler_.arrived(part);
      Text& text = *part.text;
      if (text.request.judged_from) {
        judged_[text.id] += part.tokens - part.first_wanted;
        if (text.cached == std::ssize(text.tokens)) scheduler_.finish(text), ++finished_;
        continue;
      }
      if (text.drawn + 1 >= text.request.max_new_tokens) {
        order_.push_back(text.id);
        scheduler_.finish(text), ++finished_;
      } else {
        scheduler_.append(text, 1000 + text.drawn);
      }
    }
  }

  Limits limits_;
  Scheduler scheduler_;
  std::deque<std::vector<Part>> under_way_;
  std::map<std::pair<int32_t, int64_t>, std::pair<int64_t, int64_t>> cache_;
};

std::vector<int64_t> some_tokens(int64_t count, std::mt19937& random) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int64_t>(random() % 50));
  return tokens;
}

TEST(Scheduler, FinishesEveryRequestOfRandomLoadsAndLosesNoPage) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const Limits limits{.rows = 1 + static_cast<int64_t>(random() % 40),
                        .logit_rows = 1 + static_cast<int64_t>(random() % 10),
                        .pages = 6 + static_cast<int64_t>(random() % 20),
                        .page_tokens = 1 + static_cast<int64_t>(random() % 9),
                        .texts = 1 + static_cast<int64_t>(random() % 8),
                        .context = 60,
                        .rounds = 1 + static_cast<int64_t>(random() % 4)};
    Machine machine(limits);
    const int64_t room = std::min<int64_t>(limits.context, limits.pages * limits.page_tokens);
    int64_t count = 0;
    std::map<int64_t, int64_t> judged;
    for (int prompt = 0; prompt < 15; ++prompt) {
      const std::vector<int64_t> tokens =
          some_tokens(1 + static_cast<int64_t>(random()) % std::max<int64_t>(1, room / 2), random);
      const int samples = 1 + static_cast<int>(random() % 3);
      for (int sample = 0; sample < samples; ++sample) {
        if (random() % 4 == 0 && tokens.size() > 1) {
          const auto from = 1 + static_cast<int64_t>(random() % (tokens.size() - 1));
          judged[machine.scheduler().add({.tokens = tokens, .judged_from = from})] = std::ssize(tokens) - from;
        } else {
          machine.scheduler().add(
              {.tokens = tokens,
               .max_new_tokens = 1 + static_cast<int64_t>(random()) % (room - std::ssize(tokens) + 1)});
        }
        ++count;
      }
    }
    for (int i = 0; i < 100000 && machine.run(); ++i) {
    }
    EXPECT_EQ(machine.finished_, count) << seed;
    EXPECT_TRUE(machine.scheduler().idle());
    EXPECT_EQ(machine.scheduler().free_pages(), limits.pages) << seed;
    for (const auto& [id, wanted] : judged) EXPECT_EQ(machine.judged_[id], wanted);
  }
}

TEST(Scheduler, KeepsAllRoundsBusyWithTheirShareOfTheTexts) {
  Machine machine(
      {.rows = 100, .logit_rows = 8, .pages = 100, .page_tokens = 8, .texts = 8, .context = 60, .rounds = 4});
  for (int64_t i = 0; i < 8; ++i) machine.scheduler().add({.tokens = {i, 1}, .max_new_tokens = 10});
  while (machine.run()) {
  }
  EXPECT_EQ(machine.finished_, 8);
  EXPECT_EQ(machine.most_parts_, 2);
  EXPECT_EQ(machine.runs_, 40);
}

TEST(Scheduler, ReadsEqualPromptsOnce) {
  std::mt19937 random(1);
  const std::vector<int64_t> prompt = some_tokens(300, random);
  Machine machine({.rows = 64, .logit_rows = 16, .pages = 40, .page_tokens = 128, .texts = 16, .context = 1000});
  for (int sample = 0; sample < 8; ++sample) machine.scheduler().add({.tokens = prompt, .max_new_tokens = 5});
  while (machine.run()) {
  }
  EXPECT_EQ(machine.finished_, 8);
  // The prompt once, its last token for each of the other seven, and four new tokens for each.
  EXPECT_EQ(machine.read_, 300 + 7 + 8 * 4);
  EXPECT_EQ(machine.scheduler().free_pages(), 40);
}

TEST(Scheduler, AFinishedTextMakesRoomForTheNextOne) {
  Machine machine({.rows = 8, .logit_rows = 2, .pages = 100, .page_tokens = 4, .texts = 2, .context = 100});
  for (const int64_t count : {2, 20, 2, 2, 2})
    machine.scheduler().add({.tokens = {1, 2, count}, .max_new_tokens = count});
  while (machine.run()) {
  }
  EXPECT_EQ(machine.most_texts_, 2);
  EXPECT_EQ(machine.order_.back(), 1);  // the others passed by beside the long one
  EXPECT_LT(machine.runs_, 24);
}

TEST(Scheduler, GoesOnAfterAParkedText) {
  std::mt19937 random(2);
  Machine machine({.rows = 64, .logit_rows = 1, .pages = 10, .page_tokens = 16, .texts = 1, .context = 160});
  std::vector<int64_t> talk = some_tokens(20, random);
  machine.scheduler().add({.tokens = talk, .max_new_tokens = 4, .parks = true});
  while (machine.run()) {
  }
  EXPECT_EQ(machine.read_, 23);
  for (int64_t i = 0; i < 3; ++i) talk.push_back(1000 + i);
  talk.push_back(7), talk.push_back(8);
  machine.scheduler().add({.tokens = talk, .max_new_tokens = 1, .parks = true});
  while (machine.run()) {
  }
  EXPECT_EQ(machine.read_, 25);
}

TEST(Scheduler, RefusesWhatCanNeverRun) {
  Scheduler scheduler({.rows = 8, .logit_rows = 2, .pages = 4, .page_tokens = 4, .texts = 2, .context = 30});
  EXPECT_THROW(scheduler.add({.tokens = {}, .max_new_tokens = 1}), UsageError);
  EXPECT_THROW(scheduler.add({.tokens = std::vector<int64_t>(31), .max_new_tokens = 1}), UsageError);
  EXPECT_THROW(scheduler.add({.tokens = std::vector<int64_t>(10), .max_new_tokens = 8}), UsageError);
  EXPECT_NO_THROW(scheduler.add({.tokens = std::vector<int64_t>(10), .max_new_tokens = 7}));
  EXPECT_THROW(scheduler.add({.tokens = {1}, .judged_from = 1}), UsageError);
}

}  // namespace
}  // namespace trireme::generate
