// Settings of rewards: which functions judge the answers of a model that learns from them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/config/declaration.h"

namespace trireme::rewards {

struct RewardSettings {
  std::optional<std::vector<std::string>> functions;
  std::optional<std::vector<std::string>> weights;  ///< numbers, one for each function
  std::string answer_key = "answer";
  double tolerance = 0;
  std::optional<std::string> pattern;
  std::optional<int64_t> length;
  std::optional<std::vector<std::string>> command;  ///< the program of the reward "command", and its arguments
  std::chrono::milliseconds command_timeout{60000};  ///< for the answers to one prompt
  std::optional<int64_t> command_memory;  ///< bytes of addresses
  bool operator==(const RewardSettings&) const = default;
};
config::Section section(RewardSettings& settings);

/// Names of the functions that there are.
std::vector<std::string> reward_names();
/// Whether the function compares with the right answer (reward.answer_key).
bool reads_answer(std::string_view reward);
/// The weight of each function that is named.
std::vector<double> reward_weights(const RewardSettings& settings);

}  // namespace trireme::rewards
