// Answers: the model's own texts to prompts while it is trained, and what they are worth. The engine's list of
// generation writes them with the weights that the next step trains. So a token's log-probability here is the one that
// the step computes, bit for bit. With grpo.rollout_quantize, a model in 4 bits beside it writes those of rollouts
// (train/quantized_sampler.h).
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/generate/generator.h"
#include "trireme/rewards/reward.h"
#include "trireme/text/tokenizer.h"
#include "trireme/train/quantized_sampler.h"
#include "trireme/train/rollout.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// A line of a file of prompts.
struct AskedPrompt {
  std::vector<int64_t> tokens;
  std::string text;
  nlohmann::json row;
  std::string place = {};  ///< "FILE:LINE"
};

struct PromptSet {
  std::vector<AskedPrompt> all;
  std::string chat_template = {};  ///< of conversations; "": there are none
  int64_t too_long = 0;  ///< left out: more tokens than grpo.max_prompt_length
  int64_t unanswered = 0;  ///< of `all`: a reward has no right answer to compare with, so their groups fail

  /// ", 3 too long and left out (...)", or nothing: what to know beside their number.
  std::string remarks(const Settings& settings) const;
};

/// The prompts of the file that `setting` names: grpo.prompts or grpo.val_prompts.
/// Errors    UsageError naming setting, file and line; no question is left; no line has what a reward reads
PromptSet read_prompt_set(const Settings& settings, std::string_view setting, const std::string& file,
                          const text::Tokenizer& tokenizer);

/// How answers are drawn.
struct Drawing {
  int64_t samples = 1;  ///< to each question
  bool likeliest = false;  ///< the likeliest tokens
  uint64_t key = 0;  ///< other draws for other keys
  bool of_rollout = false;  ///< by the weights in 4 bits, if there are such
  rewards::GivesUp gives_up = {};  ///< asked on each rank while answers are written and judged; empty: they all are
};

/// A rank gives up what answers were written for. Thrown on all ranks.
struct StepGivenUp {};

class AnswerWriter {
 public:
  AnswerWriter(Session& session, const text::Tokenizer& tokenizer, const std::vector<rewards::Weighted>& rewards);

  /// Comes before the answers of a rollout: quantizes the weights, if grpo.rollout_quantize says so, which is a part of
  /// writing. Every rank must call.
  void begin_rollout();
  /// Answers to some questions, with their rewards. Copies of the model divide the questions; the result is the same on
  /// every rank. Every rank must call.
  ///
  /// @param numbers  of the questions among `questions`
  /// @param step     that rewards are told
  std::vector<RolloutGroup> write(const std::vector<AskedPrompt>& questions, std::span<const int64_t> numbers,
                                  const Drawing& drawing, int64_t step);
  /// The text of an answer, up to a stop word, as trireme generate writes it.
  std::string text_of(const RolloutAnswer& answer) const;

  /// Since begin_rollout(), on the rank that took longest. The same on every rank.
  struct Seconds {
    double writing = 0, judging = 0;
  };
  const Seconds& seconds() const { return seconds_; }

 private:
  /// Which ranks answer which questions.
  struct Copies {
    int mine = 0, count = 1;  ///< of the model
    bool judges = true;  ///< one rank of each copy does
    std::vector<int> heads = {};  ///< these ranks, by copy
  };
  static Copies copies_of(const plan::StepRequest& request);

  std::vector<RolloutGroup> write_own(const std::vector<AskedPrompt>& questions, std::span<const int64_t> numbers,
                                      const Drawing& drawing, const Copies& copies, bool& is_whole);
  void judge(const AskedPrompt& question, RolloutGroup& group, int64_t step, const rewards::GivesUp& gives_up) const;
  void count(double writing, double judging);

  Session& s_;
  const text::Tokenizer& tokenizer_;
  const std::vector<rewards::Weighted>& rewards_;
  std::vector<int64_t> stop_ids_;
  Seconds seconds_;
  Copies trained_, quantized_;
  std::unique_ptr<QuantizedSampler> sampler_;  ///< null: the trained weights write all answers
};

}  // namespace trireme::train
