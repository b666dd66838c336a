// How well a trained model predicts: perplexity of a text, and multiple choice by likelihood.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trireme/config/settings.h"
#include "trireme/launch/environment.h"

namespace trireme::train {

/// One question: which of `choices` continues `context`.
struct Question {
  std::string context;
  std::vector<std::string> choices;
  int64_t answer = 0;
};

/// Reads a JSONL file with one question a line: {"context" | "question" | "ctx" | "query": text,
/// "choices" | "endings": [text, ...], "answer" | "label" | "gold": number of the right one from 0}.
/// Errors    UsageError naming file, line and key
std::vector<Question> read_questions(const std::filesystem::path& path);

/// Refuses before a process starts what `evaluate` would refuse. Errors: UsageError, CheckpointError
void check_evaluate(const config::Settings& settings);

/// Prints what evaluate.text and evaluate.multiple_choice ask for; evaluate.json writes the same numbers.
///
/// Perplexity  the text in windows of evaluate.max_seq_length tokens, each read from its own beginning; every token but
///             the first of the text is predicted once. Bits per byte do not depend on the tokenizer
/// Choices     accuracy by the sum of log-probabilities of a choice's tokens (acc), and by that sum divided by its
/// bytes
///             (acc_norm)
/// @returns    the exit code
int evaluate(const config::Settings& settings, const launch::RankEnvironment& environment);

}  // namespace trireme::train
