// Answers that the model writes to the questions of a task, in batches by the engine's list of generation.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "trireme/train/cache_room.h"
#include "trireme/train/eval_tasks.h"
#include "trireme/train/inference.h"

namespace trireme::train {

/// Tokens of a task's prompts. Of a prompt that leaves no room for the answer, the newest tokens are kept, and rank 0
/// says how many prompts that are.
/// Errors    UsageError: an answer has no room in the model's positions
std::vector<std::vector<int64_t>> encode_prompts(const Inference& in, const EvalTask& task);

/// Room for the answers to these prompts.
CacheWish room_for_written(const Inference& in, const EvalTask& task, const std::vector<std::vector<int64_t>>& prompts);

/// Writes the answers and judges them; copies of the model share the questions. `lines` gets a line for each question.
/// The result is the same on every rank, and every rank must call.
///
/// @param seed  of draws, where the task draws
/// @returns  {"questions", and for each filter F "exact_match,F" and "exact_match_stderr,F"}; of a task without filters
///           "exact_match" and "exact_match_stderr"
nlohmann::ordered_json write_answers(Inference& in, const EvalTask& task,
                                     const std::vector<std::vector<int64_t>>& prompts, int64_t seed,
                                     std::string& lines);

/// The key of a filter's errors: "exact_match_stderr,F" for "exact_match,F". The same for other metrics.
std::string stderr_key(const std::string& key);

}  // namespace trireme::train
