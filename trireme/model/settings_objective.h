// Settings of what a run makes of its tokens' log-probabilities.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"

namespace trireme::model {

/// Losses of preferences, with TRL's names (model/objective.cpp).
enum class PairLoss {
  sigmoid,
  sigmoid_norm,
  hinge,
  ipo,
  exo_pair,
  robust,
  nca_pair,
  bco_pair,
  sppo_hard,
  apo_zero,
  apo_down,
  discopop,
  sft,
  orpo,
  simpo,
};
std::span<const config::Choice<PairLoss>> choices_of(PairLoss);

/// Additions to cross-entropy.
struct ObjectiveSettings {
  double label_smoothing = 0;
  double z_loss = 0;
  double neftune_alpha = 0;
  bool operator==(const ObjectiveSettings&) const = default;
};
config::Section section(ObjectiveSettings& settings);

/// Which end of a text is cut off if it is too long.
enum class TruncationMode { keep_start, keep_end };
std::span<const config::Choice<TruncationMode>> choices_of(TruncationMode);

/// Learning from pairs of replies; the names are TRL's.
struct PreferenceSettings {
  std::vector<std::string> loss_type = {"sigmoid"};
  std::optional<std::vector<std::string>> loss_weights;  ///< numbers, one for each loss
  double beta = 0.1;
  double label_smoothing = 0;
  double discopop_tau = 0.05;
  double simpo_gamma = 0.5;
  std::optional<int64_t> max_length;  ///< absent: half a row
  TruncationMode truncation_mode = TruncationMode::keep_start;
  std::optional<std::string> reference;  ///< absent: the model before training
  bool operator==(const PreferenceSettings&) const = default;
};
config::Section section(PreferenceSettings& settings);

}  // namespace trireme::model
