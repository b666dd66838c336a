// Settings of the update rule and the learning rate.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "trireme/config/declaration.h"

namespace trireme::optim {

enum class Rule {
  adamw,  ///< Loshchilov & Hutter, 2019; torch.optim.AdamW
  adam,   ///< Kingma & Ba, 2015; torch.optim.Adam: the weight decay is a part of the gradient
  sgd,  ///< with momentum, and Nesterov's if asked for; torch.optim.SGD: the weight decay is a part of the gradient
  lion,  ///< Chen et al., 2023: the sign of an interpolated momentum, with AdamW's decay
};
std::span<const config::Choice<Rule>> choices_of(Rule);

/// How the learning rate depends on the global batch (linear: Goyal et al. 2017; sqrt: Krizhevsky 2014).
enum class LrScaling { none, linear, sqrt };
std::span<const config::Choice<LrScaling>> choices_of(LrScaling);

/// Defaults are those of torch.optim. An empty value stands for the default of the chosen rule (optim::options_of()).
struct OptimizerSettings {
  Rule name = Rule::adamw;
  double lr = 1e-3;
  std::optional<std::array<double, 2>> betas;
  std::optional<double> eps;
  std::optional<double> weight_decay;
  std::optional<double> momentum;
  std::optional<bool> nesterov;
  LrScaling lr_scaling = LrScaling::none;
  int64_t base_batch_size = 256;
  bool operator==(const OptimizerSettings&) const = default;
};
config::Section section(OptimizerSettings& settings);

/// lr times a factor that lr_scaling chooses. `linear`: global_batch_size / base_batch_size. `sqrt`: the square root of
/// this ratio. `none`: 1.
double scaled_lr(const OptimizerSettings& settings, int64_t global_batch_size);

}  // namespace trireme::optim
