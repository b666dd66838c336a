// How well a trained model predicts: perplexity of a text, and multiple choice by likelihood.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/launch/identity/environment.h"
#include "trireme/settings/settings.h"

namespace trireme::train {

/// One question: which of `choices` continues `context`.
struct Question {
  std::string context;
  std::vector<std::string> choices;
  int64_t answer = 0;
};

/// Reads a JSONL file with one question a line: {"context" | "question" | "ctx" | "query": text,
/// "choices" | "endings": [text, ...], "answer" | "label" | "gold": index of the right choice, from 0}.
/// Errors    UsageError naming file, line and key
std::vector<Question> read_questions(const std::filesystem::path& path);

/// Refuses what `evaluate` would refuse, before ranks start. Errors: UsageError, CheckpointError
void check_evaluate(const Settings& settings);

/// Prints the results for evaluate.text, evaluate.multiple_choice, evaluate.score (score.h) or evaluate.classify;
/// evaluate.json gets the same numbers.
///
/// Perplexity  of the text in windows of evaluate.max_seq_length tokens without context before them; every token except
///             the first of the text is predicted once. Bits per byte do not depend on the tokenizer
/// Choices     accuracy by the sum of log-probabilities of a choice's tokens (acc), and by that sum per byte (acc_norm)
/// @returns    the exit code
int evaluate(const Settings& settings, const launch::RankEnvironment& environment);

}  // namespace trireme::train
