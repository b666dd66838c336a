// A request: a text to continue, or one whose tokens are to be judged.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trireme/generate/sampling.h"

namespace trireme::generate {

/// Codes of a Free Transformer.
struct Codes {
  uint64_t seed = 0;  ///< of the draws: the encoder's for the prompt, uniform ones for later tokens
  std::optional<int64_t> fixed;  ///< the code of every later token, instead of draws
  bool of_prompt_too = false;  ///< the prompt's codes are uniform, too: the encoder's would tell of the tokens
};

/// Why a text ended.
enum class Finish {
  stop,     ///< a token of Request::stop_ids came
  length,   ///< max_new_tokens are there
  context,  ///< the model has no more positions
  caller,   ///< Request::take returned false
  scored,   ///< the tokens were judged
};

struct Request {
  std::vector<int64_t> tokens;  ///< at least one
  int64_t max_new_tokens = 0;
  Sampling sampling = {};
  uint64_t prompt = 0, sample = 0;  ///< Draw
  std::vector<int64_t> stop_ids = {};
  /// Log-probabilities of tokens[judged_from ...] are wanted. Then max_new_tokens is 0.
  std::optional<int64_t> judged_from = {};
  /// Of the new tokens: of the whole vocabulary at the temperature (at 0: of 1), before the repetition penalty and
  /// cuts.
  bool logprobs = false;
  /// When the model's positions are used up, the text goes on after its newest half, which is read again.
  bool slides = false;
  bool takes_stop = false;  ///< `take` gets the token that stops the text, too
  bool parks = false;  ///< the next request may begin with this text: its cache is kept until then
  Codes codes = {};

  /// Called for each new token, with its log-probability (NaN unless wanted); false ends the text.
  std::function<bool(int64_t token, double logprob)> take = {};
  /// `is_greedy`: each of the tokens is the likeliest at its place.
  std::function<void(const std::vector<double>& logprobs, bool is_greedy)> judged = {};
  std::function<void(Finish)> finished = {};
};

}  // namespace trireme::generate
