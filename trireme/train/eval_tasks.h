// Questions that are answered by likelihood: a file of one's own, and the tasks of lm-evaluation-harness, whose prompts
// are made here from the rows of their data sets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/train/settings.h"

namespace trireme::train {

/// What could be the answer, behind its context.
struct Choice {
  std::string context, text;
  int64_t characters = 0;  ///< by which a sum of log-probabilities is divided
};

struct Question {
  std::vector<Choice> choices;
  size_t answer = 0;  ///< the number of the right one
};

/// What a task's results are.
enum class EvalTaskKind {
  choice,  ///< acc: the likeliest choice is right
  choice_norm,  ///< also acc_norm: by log-probability per character
  word,  ///< one choice a question: acc, whether it is what greedy decoding writes; perplexity
};

struct EvalTask {
  std::string name;
  EvalTaskKind kind = EvalTaskKind::choice;
  std::vector<Question> questions;
};

/// Reads evaluate.multiple_choice and evaluate.tasks with the examples of evaluate.fewshot, evaluate.limit questions of
/// each at most.
/// Errors    UsageError naming the setting or file, line and key
std::vector<EvalTask> read_tasks(const EvaluateSettings& settings);

/// The names that evaluate.tasks takes.
std::vector<std::string> task_names();

}  // namespace trireme::train
