// How well a trained model predicts: perplexity of a text, and multiple choice by likelihood.
#pragma once

#include "trireme/launch/identity/environment.h"
#include "trireme/settings/settings.h"

namespace trireme::train {

/// Refuses what `evaluate` would refuse, before ranks start. Errors: UsageError, CheckpointError
void check_evaluate(const Settings& settings);

/// Prints the results for evaluate.text, evaluate.multiple_choice and evaluate.tasks (eval_tasks.h), evaluate.score
/// (score.h) or evaluate.classify; evaluate.json gets the same numbers.
///
/// Perplexity  of the text in windows of evaluate.max_seq_length tokens without context before them; every token except
///             the first of the text is predicted once. Bits per byte do not depend on the tokenizer
/// Choices     accuracy by the sum of log-probabilities of a choice's tokens (acc), and by that sum per character
///             (acc_norm), each with the error of the mean
/// @returns    the exit code
int evaluate(const Settings& settings, const launch::RankEnvironment& environment);

}  // namespace trireme::train
