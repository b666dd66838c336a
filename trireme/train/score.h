// Log-probabilities of given tokens under a model, with an adapter or without, on any mesh of trireme evaluate.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/text/tokenizer.h"
#include "trireme/train/inference.h"

namespace trireme::train {

/// The tokens of a text. `add_special`: begins with the token that begins the tokenizer's texts. `parse_special`:
/// special tokens that the text names become their ids, as in prompts.
std::vector<int64_t> encode_text(const text::Tokenizer& tokenizer, std::string_view text, bool add_special,
                                 bool parse_special = true);

/// The tokens of a prompt of a task, as lm-evaluation-harness encodes it. What the tokenizer puts around texts is left
/// out if the text begins with the token that begins texts ("<s>[INST] ..."). The text would begin with two otherwise.
std::vector<int64_t> encode_context(const text::Tokenizer& tokenizer, std::string_view text);

/// Tokens to be scored: those from `first` on, each behind all before it.
struct ScoredText {
  std::vector<int64_t> tokens;
  int64_t first = 1;
};

/// What stands before a text without a context: the token that begins or ends the tokenizer's texts, or a line break.
std::vector<int64_t> tokens_before_all(const text::Tokenizer& tokenizer);

/// A text behind a context, as lm-evaluation-harness encodes both: together, so that the tokens at their border are
/// those of the whole text. Space that ends the context belongs to the text.
/// Errors    UsageError: the text has no token behind those of the context, where the harness fails, too
ScoredText encode_pair(const text::Tokenizer& tokenizer, std::string_view context, std::string_view continuation);

/// Reads a JSONL file: {"prompt": text, "completion": text} scores the completion, {"text": text} all tokens but the
/// first, and {"tokens": [ids]} the same, or those from "first" on.
/// `tokenizer` is null if the file has ids alone.
/// Errors    UsageError naming file, line and key
std::vector<ScoredText> read_scored_texts(const std::filesystem::path& path, const text::Tokenizer* tokenizer,
                                          int64_t vocab_size);

/// Whether all lines of such a file are {"tokens": [ids]}.
/// Errors    UsageError: no lines of JSON
bool has_ids_alone(const std::filesystem::path& path);

/// Reads the texts with the model's tokenizer (null if the file has ids alone), before ranks start.
/// Errors    UsageError, CheckpointError
void check_score(const EvaluateSettings& settings, const text::Tokenizer* tokenizer, const model::ModelConfig& config);

/// Scores the texts of evaluate.score. evaluate.predictions gets a line for each: {"tokens", "logprobs", "sum"}.
/// Every rank must call.
/// @returns  {"texts", "tokens", "logprob": mean of all tokens}
/// Errors    UsageError: a text is longer than the model reads
nlohmann::ordered_json score_texts(Inference& in, const EvaluateSettings& settings);

}  // namespace trireme::train
