// Questions, and how they are answered: by likelihood, or by a text that the model writes. They come from a file of
// one's own, or are the tasks of lm-evaluation-harness, whose prompts are made here from the rows of their data sets.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/train/settings.h"
#include "trireme/train/task_file.h"

namespace trireme::train {

/// What could be the answer, behind its context.
struct Choice {
  std::string context, text;
  int64_t characters = 0;  ///< by which a sum of log-probabilities is divided
};

struct Question {
  std::vector<Choice> choices;
  size_t answer = 0;  ///< the number of the right one
  // If the answer is written, instead of these:
  std::string prompt;
  std::vector<std::string> targets;
  std::string place = {};  ///< "FILE:LINE"
};

/// What a task's results are.
enum class EvalTaskKind {
  choice,  ///< acc: the likeliest choice is right
  choice_norm,  ///< also acc_norm: by log-probability per character
  word,  ///< one choice a question: acc, whether it is what greedy decoding writes; perplexity
  written,  ///< exact_match of what each filter takes out of the model's text
};

struct EvalTask {
  std::string name;
  EvalTaskKind kind = EvalTaskKind::choice;
  std::vector<Question> questions = {};
  std::shared_ptr<const WrittenTask> written = nullptr;
};

/// The error of a mean of `count` zeros and ones, as lm-evaluation-harness gives it.
inline double error_of_mean(double mean, double count) {
  return count > 1 ? std::sqrt(mean * (1 - mean) / (count - 1)) : 0.0;
}

/// Reads evaluate.multiple_choice and evaluate.tasks with the examples of evaluate.fewshot, evaluate.limit questions of
/// each at most.
/// Errors    UsageError naming the setting or file, line and key
std::vector<EvalTask> read_tasks(const EvaluateSettings& settings);

/// The names that evaluate.tasks takes for files of rows.
std::vector<std::string> task_names();

}  // namespace trireme::train
