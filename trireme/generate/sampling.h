// How a token is drawn from logits. A draw is a function of (seed, prompt, sample, position) and of the logits: neither
// the other texts of a batch nor the order of work can change it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace trireme::generate {

/// The settings of a draw, with the meanings that they have in transformers. They apply in this order.
struct Sampling {
  double repetition_penalty =
      1;  ///< divides positive logits of tokens that are there already, multiplies negative ones
  double temperature = 0.8;  ///< divides the logits; 0: always the likeliest token
  std::optional<int64_t> top_k;  ///< only the k likeliest tokens
  double top_p = 1;  ///< only the likeliest tokens that together reach this probability
  double min_p = 0;  ///< only tokens with this share of the likeliest one's probability
  uint64_t seed = 42;
};

/// Holds the numbers to the bounds of settings.h.
/// Errors    UsageError naming the number that is out of its bounds
void check(const Sampling& sampling);

/// Which draw it is.
struct Draw {
  uint64_t prompt = 0, sample = 0;
  int64_t position = 0;  ///< of the token among the new ones
};

/// Divides (multiplies) the logits of the tokens that occur in `seen`, once each.
void penalize(std::span<float> logits, std::span<const int64_t> seen, double penalty);

/// The token of a draw. Equal logits are taken in the order of their ids.
///
/// Cost      one pass over the vocabulary; top_k and top_p order the tokens that they may keep
/// Errors    ShapeError if a logit is NaN, or none is finite
int64_t draw(std::span<const float> logits, const Sampling& sampling, const Draw& which);

}  // namespace trireme::generate
