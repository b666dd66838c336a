#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/config/problems.h"
#include "trireme/model/settings_objective.h"

namespace trireme::model {

using config::Resumed;
using config::Rules;

std::span<const config::Choice<PairLoss>> choices_of(PairLoss) {
  static const std::vector<config::Choice<PairLoss>> kTable = {{PairLoss::sigmoid, "sigmoid", {"dpo"}},
                                                               {PairLoss::sigmoid_norm, "sigmoid_norm", {}},
                                                               {PairLoss::hinge, "hinge", {}},
                                                               {PairLoss::ipo, "ipo", {}},
                                                               {PairLoss::exo_pair, "exo_pair", {}},
                                                               {PairLoss::robust, "robust", {}},
                                                               {PairLoss::nca_pair, "nca_pair", {}},
                                                               {PairLoss::bco_pair, "bco_pair", {}},
                                                               {PairLoss::sppo_hard, "sppo_hard", {}},
                                                               {PairLoss::apo_zero, "apo_zero", {}},
                                                               {PairLoss::apo_down, "apo_down", {}},
                                                               {PairLoss::discopop, "discopop", {}},
                                                               {PairLoss::sft, "sft", {}},
                                                               {PairLoss::orpo, "orpo", {}},
                                                               {PairLoss::simpo, "simpo", {}}};
  return kTable;
}

std::span<const config::Choice<TruncationMode>> choices_of(TruncationMode) {
  static const std::vector<config::Choice<TruncationMode>> kTable = {{TruncationMode::keep_start, "keep_start", {}},
                                                                     {TruncationMode::keep_end, "keep_end", {}}};
  return kTable;
}

config::Section section(ObjectiveSettings& s) {
  return {.name = "objective",
          .title = "what is added to cross-entropy",
          .resumed = Resumed::learned,
          .rows = {{"objective.label_smoothing", &s.label_smoothing,
                    "share of each target that goes to all tokens alike", Rules{.at_least = 0, .below = 1}},
                   {"objective.z_loss", &s.z_loss,
                    "weight of the square of log(sum of exp(logits)), which keeps logits small",
                    Rules{.at_least = 0, .example = "1e-4"}},
                   {"objective.neftune_alpha", &s.neftune_alpha,
                    "noise on the tokens' embeddings in training, uniform in +-alpha / sqrt(row x width) (NEFTune)",
                    Rules{.at_least = 0, .example = "5"}}},
          .others = {{{"neftune_noise_alpha"}, "noise on embeddings is objective.neftune_alpha"},
                     {{"label_smoothing_factor"}, "the smoothing of targets is objective.label_smoothing"},
                     {{"lm_head_z_loss", "z_loss_weight"}, "the weight of the z-loss is objective.z_loss"}}};
}

namespace {

std::vector<std::string> loss_names() {
  std::vector<std::string> names;
  for (const auto& choice : choices_of(PairLoss{})) names.emplace_back(choice.name);
  return names;
}

bool uses(const PreferenceSettings& s, std::string_view loss) {
  return std::ranges::find(s.loss_type, loss) != s.loss_type.end();
}

void check_preferences(const PreferenceSettings& s, config::Problems& problems) {
  if (s.loss_type.empty()) problems.add("dpo.loss_type is empty", {}, "name a loss, for instance sigmoid");
  if (s.loss_weights && s.loss_weights->size() != s.loss_type.size())
    problems.add(fmt::format("dpo.loss_weights has {}, but dpo.loss_type names {}",
                             base::plural(std::ssize(*s.loss_weights), "number"), s.loss_type.size()),
                 {}, "give one weight for each loss, or leave dpo.loss_weights out: all count alike");
  if (s.loss_weights)
    for (const std::string& weight : *s.loss_weights) {
      if (const auto value = base::parse_number(weight); !value || *value < 0)
        problems.add(fmt::format("dpo.loss_weights has {}, which is no weight", weight), {},
                     "weights are numbers of 0 or more");
    }
  const auto is_zero = [](const std::string& weight) { return base::parse_number(weight) == 0.0; };
  if (s.loss_weights && !s.loss_weights->empty() && std::ranges::all_of(*s.loss_weights, is_zero))
    problems.add("all of dpo.loss_weights are 0, so nothing is learned", {}, "give one loss a weight above 0");
  if (uses(s, "robust") && !(s.label_smoothing < 0.5))
    problems.add("the loss robust takes half of the pairs or more as turned round", {},
                 "dpo.label_smoothing is the share of such pairs: give less than 0.5, for instance 0.1");
  if (uses(s, "exo_pair") && !(s.label_smoothing > 0))
    problems.add("the loss exo_pair has no value without smoothing", {}, "give dpo.label_smoothing, for instance 1e-3");
}

}  // namespace

config::Section section(PreferenceSettings& s) {
  const Rules positive{.above = 0};
  return {
      .name = "dpo",
      .title = "learning from pairs of replies",
      .resumed = Resumed::learned,
      .rows = {{"dpo.loss_type", &s.loss_type, "losses of a pair, summed", Rules{.classes = loss_names()}},
               {"dpo.loss_weights", &s.loss_weights, "how often each of them counts",
                Rules{.absent = "null", .when_absent = "all count alike", .example = "[1, 0.5]"}},
               {"dpo.beta", &s.beta,
                "how strongly replies are compared; with a higher one, the model stays nearer "
                "to its reference",
                positive},
               {"dpo.label_smoothing", &s.label_smoothing,
                "share of pairs that may be turned round (robust, exo_pair, simpo)", Rules{.at_least = 0, .below = 1}},
               {"dpo.discopop_tau", &s.discopop_tau, "temperature of the loss discopop", positive},
               {"dpo.simpo_gamma", &s.simpo_gamma, "margin of the loss simpo", Rules{.at_least = 0}},
               {"dpo.max_length", &s.max_length, "most tokens of a prompt with one reply",
                Rules{.unit = "tokens",
                      .at_least = 2,
                      .absent = "null",
                      .when_absent = "half of "
                                     "train.max_seq_length",
                      .example = "512"}},
               {"dpo.truncation_mode", &s.truncation_mode, "which part of a longer one is kept"},
               {"dpo.reference", &s.reference,
                "folder of the model that replies are compared with; or of an adapter for the same base",
                Rules{.absent = "none",
                      .when_absent = "the model before training, with lora.initial_adapter and without new adapters",
                      .example = "llama-sft"}}},
      .others = {{{"precompute_ref_log_probs"},
                  "log-probabilities of the reference are always computed once, before training; leave it out"},
                 {{"ref_model", "ref_model_name", "reference_model"}, "the reference is dpo.reference"},
                 {{"cpo_alpha"}, "the likelihood beside simpo is a loss of its own: dpo.loss_type [simpo, sft]"},
                 {{"max_prompt_length"}, "texts are cut to dpo.max_length, with their prompt"},
                 {{"f_divergence_type", "ld_alpha", "use_weighting", "sync_ref_model"}, "it is not built yet", true}},
      .check = [&s](config::Problems& problems) { check_preferences(s, problems); }};
}

}  // namespace trireme::model
