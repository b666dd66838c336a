// Rewards: numbers that say what a model's answers are worth (docs/rewards.md). A reward is a function by name, or one
// of an embedding program.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/rewards/settings.h"

namespace trireme::rewards {

/// An answer of the model.
struct Answer {
  std::string prompt;      ///< as the file of prompts has it; of a conversation, its messages one after the other
  std::string completion;  ///< decoded, without the token that ended it
  const nlohmann::json* row = nullptr;  ///< the other keys of the prompt's line; never null
  int64_t tokens = 0;      ///< of the completion, with the token that ended it
  bool is_truncated = false;  ///< the limit of tokens ended it
  int64_t prompt_number = 0, sample = 0;
  std::string place = {};  ///< "FILE:LINE" of the prompt; "": unknown
};

/// Whether the row of a prompt has the right answer that the reward reads: for `number`, one that is a number.
bool has_right_answer(std::string_view reward, const nlohmann::json& row, const RewardSettings& settings);

/// One for each answer; none: the answer is left out of its group.
using Scores = std::vector<std::optional<double>>;

/// A reward could not be computed: one sentence.
struct Failure : Error {
  using Error::Error;
};

/// Whether the run stops so soon that no reward is waited for any more.
using GivesUp = std::function<bool()>;

class Reward {
 public:
  virtual ~Reward() = default;
  virtual const std::string& name() const = 0;
  /// Called with the answers to one prompt. Errors    Failure, which costs this group
  virtual Scores score(std::span<const Answer> answers, int64_t step, const GivesUp& gives_up = {}) = 0;
};

/// A function of an embedding program.
class Function : public Reward {
 public:
  using Call = std::function<Scores(std::span<const Answer>, int64_t step)>;
  Function(std::string name, Call call) : name_(std::move(name)), call_(std::move(call)) {}
  const std::string& name() const override { return name_; }
  Scores score(std::span<const Answer> answers, int64_t step, const GivesUp&) override { return call_(answers, step); }

 private:
  std::string name_;
  Call call_;
};

struct Weighted {
  double weight = 1;
  std::unique_ptr<Reward> reward;
};

/// The rewards that the settings name.
/// Errors    UsageError: none is named; an expression that cannot be read
std::vector<Weighted> make_rewards(const RewardSettings& settings);

}  // namespace trireme::rewards
