// Settings of the update rule and the learning rate.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"

namespace trireme::optim {

enum class Rule {
  adamw,  ///< Loshchilov & Hutter, 2019; torch.optim.AdamW
  adam,   ///< Kingma & Ba, 2015; torch.optim.Adam: the weight decay is a part of the gradient
  sgd,  ///< with momentum, and Nesterov's if asked for; torch.optim.SGD: the weight decay is a part of the gradient
  lion,  ///< Chen et al., 2023: the sign of an interpolated momentum, with AdamW's decay
  adagrad,  ///< Duchi et al., 2011; torch.optim.Adagrad: the weight decay is a part of the gradient
  lars,  ///< You et al., 2017: SGD with momentum, each matrix at a rate by its norms
  lamb,  ///< You et al., 2020, as DeepSpeed's FusedLamb computes it: Adam, each tensor at a rate by its norms
  adafactor,  ///< Shazeer & Stern, 2018; transformers' Adafactor: second moments by row and column
  adamw8bit,  ///< Dettmers et al., 2021; bitsandbytes' AdamW8bit: AdamW whose moments have 8 bits, in blocks of 256
  muon,  ///< Jordan, 2024; torch.optim.Muon: steps of hidden matrices are made orthogonal; the rest is AdamW's
};
std::span<const config::Choice<Rule>> choices_of(Rule);

/// Whether the rule reads a whole tensor to update one element of it. Then a rank owns whole tensors.
bool is_by_tensor(Rule rule);
/// Whether it computes on GPUs.
bool runs_on_gpu(Rule rule);
/// Rules by tensor need masters, state and gradients in float32 or float64, and AdamW8bit in float32. `bytes` are those
/// of an element: 2 if any of the three has two, else the masters'.
std::optional<config::Refusal> check_storage(Rule rule, int bytes);

/// How Muon's rate depends on a matrix's shape: times sqrt(max(1, rows / columns)), or 0.2 sqrt(max(rows, columns)),
/// which gives steps of AdamW's size (Moonshot's; torch.optim.Muon has both).
enum class MuonRate { original, match_rms_adamw };
std::span<const config::Choice<MuonRate>> choices_of(MuonRate);

/// What is different for the parameters whose name holds a match of `pattern`, a regular expression.
struct ParameterRule {
  std::string pattern;
  std::optional<double> rate = {};  ///< times the learning rate
  std::optional<double> weight_decay = {};  ///< absent: as for the other parameters
  bool frozen = false;
};

/// Reads "PATTERN lr=0.1 weight_decay=0", "PATTERN frozen"; `problem` is set if the text is something else.
ParameterRule parse_parameter_rule(const std::string& text, std::string& problem);

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
  std::optional<double> trust_coefficient;
  std::optional<std::array<double, 2>> trust_bounds;
  std::optional<MuonRate> adjust_lr_fn;
  std::optional<double> adam_lr;
  std::optional<bool> relative_step, scale_parameter, warmup_init;
  std::optional<std::vector<std::string>> groups;
  LrScaling lr_scaling = LrScaling::none;
  int64_t base_batch_size = 256;
  bool in_backward = false;  ///< LOMO's and torchtune's way (optimizer_in_bwd): Lv et al., 2023
  bool operator==(const OptimizerSettings&) const = default;
};
config::Section section(OptimizerSettings& settings);

/// Weights that are updated inside the backward pass (`in_backward`) cannot wait for all gradients, as clipping to
/// `max_norm` does, and looking for overflows where the loss is scaled (`scales_loss`).
std::optional<config::Refusal> check_in_backward(bool in_backward, std::optional<double> max_norm, bool scales_loss);

/// lr times a factor that lr_scaling chooses. `linear`: global_batch_size / base_batch_size. `sqrt`: the square root of
/// this ratio. `none`: 1.
double scaled_lr(const OptimizerSettings& settings, int64_t global_batch_size);

}  // namespace trireme::optim
