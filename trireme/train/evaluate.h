// How well a trained model predicts and answers: perplexity of a text, choices by likelihood, written answers.
#pragma once

#include "trireme/launch/identity/environment.h"
#include "trireme/settings/settings.h"

namespace trireme::train {

/// Refuses what `evaluate` would refuse, before ranks start. Errors: UsageError, CheckpointError
void check_evaluate(const Settings& settings);

/// Prints the results for evaluate.text, evaluate.multiple_choice and evaluate.tasks (eval_tasks.h), evaluate.score
/// (score.h) or evaluate.classify; evaluate.json gets the same numbers.
///
/// Perplexity  of the text in windows of evaluate.max_seq_length tokens without context before them. Each window begins
///             with what begins the tokenizer's texts, and every token is predicted once; without such a token all but
///             the first of the text. Bits per byte do not depend on the tokenizer
/// Answers     written in batches, by the engine's list of generation (write_answers.h)
/// Choices     accuracy by the sum of log-probabilities of a choice's tokens (acc), and by that sum per character
///             (acc_norm), each with the error of the mean
/// @returns    the exit code
int evaluate(const Settings& settings, const launch::RankEnvironment& environment);

}  // namespace trireme::train
