#include "trireme/train/judge.h"

#include <algorithm>
#include <utility>

namespace trireme::train {
namespace {

constexpr int64_t kTexts = 8;  ///< at a time

}  // namespace

generate::Room room_to_judge(const Inference& in, int64_t longest) {
  longest = std::min(longest, in.config.longest_generation());
  const int64_t pages = (longest + ops::kAttentionPage - 1) / ops::kAttentionPage;
  return {.texts = kTexts,
          .tokens = in.config.is_free() ? std::max<int64_t>(512, longest) : 512,
          .cache_tokens = kTexts * pages * ops::kAttentionPage};
}

Judge::Judge(Inference& in, const std::string& what, size_t count) : in_(in), bar_(what), results_(count) {}

void Judge::add(size_t number, std::vector<int64_t> tokens, int64_t from) {
  const int64_t room = in_.generator->limits().context + 1, extra = std::max<int64_t>(0, std::ssize(tokens) - room);
  tokens.erase(tokens.begin(), tokens.begin() + extra);
  in_.generator->add({.tokens = std::move(tokens),
                      .judged_from = std::max<int64_t>(1, from - extra),
                      .codes = {.of_prompt_too = true},
                      .judged = [this, number](const std::vector<double>& logprobs, bool is_greedy) {
                        results_[number] = {logprobs, is_greedy};
                        ++done_;
                        const double all = double(results_.size()) / in_.num_replicas;
                        if (in_.is_first_rank) bar_.show(std::min(1.0, double(done_) / all));
                      }});
}

const std::vector<Judged>& Judge::run() {
  in_.generator->run();
  return results_;
}

}  // namespace trireme::train
