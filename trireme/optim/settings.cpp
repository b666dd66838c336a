#include "trireme/optim/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "trireme/base/text.h"
#include "trireme/config/problems.h"

namespace trireme::optim {

using config::Resumed;

std::span<const config::Choice<Rule>> choices_of(Rule) {
  static const std::vector<config::Choice<Rule>> kTable = {
      {Rule::adamw, "AdamW", {}},
      {Rule::adam, "Adam", {}},
      {Rule::sgd, "SGD", {}},
      {Rule::lion, "Lion", {}},
      {Rule::adagrad, "Adagrad", {}},
      {Rule::lars, "LARS", {}},
      {Rule::lamb, "LAMB", {"Lamb"}},
      {Rule::adafactor, "Adafactor", {}},
      {Rule::adamw8bit, "AdamW8bit", {"adamw_8bit", "adamw_bnb_8bit", "PagedAdamW8bit", "paged_adamw_8bit"}},
      {Rule::muon, "Muon", {}}};
  return kTable;
}

std::span<const config::Choice<MuonRate>> choices_of(MuonRate) {
  static const std::vector<config::Choice<MuonRate>> kTable = {{MuonRate::original, "original", {}},
                                                               {MuonRate::match_rms_adamw, "match_rms_adamw", {}}};
  return kTable;
}

bool is_by_tensor(Rule rule) {
  return rule == Rule::lars || rule == Rule::lamb || rule == Rule::adafactor || rule == Rule::adamw8bit ||
         rule == Rule::muon;
}

std::optional<config::Refusal> check_storage(Rule rule, int bytes) {
  if (rule == Rule::adamw8bit && bytes > 4)
    return config::Refusal{"AdamW8bit updates weights in float32",
                           "take precision 32-true, bf16-mixed or 16-mixed, or another optimizer"};
  if (bytes > 2 || !is_by_tensor(rule)) return std::nullopt;
  return config::Refusal{
      fmt::format("{} reads whole tensors, which must not have two bytes an element", config::name_of(rule)),
      "precision bf16-true and 16-true, and precision.gradients compute, take AdamW, Adam, SGD, Lion and Adagrad"};
}

std::optional<config::Refusal> check_in_backward(bool in_backward, std::optional<double> max_norm, bool scales_loss) {
  if (!in_backward) return std::nullopt;
  if (max_norm)
    return config::Refusal{
        fmt::format("optimizer.in_backward updates weights before the norm of all gradients is known, and "
                    "train.max_norm {:g} clips gradients to that norm",
                    *max_norm),
        "set train.max_norm null, or leave optimizer.in_backward out"};
  if (scales_loss)
    return config::Refusal{
        "optimizer.in_backward updates weights before it is known whether a later gradient overflows, and a step with "
        "a "
        "scaled loss is skipped if one does",
        "take precision bf16-mixed or 32-true, or leave optimizer.in_backward out"};
  return std::nullopt;
}

bool runs_on_gpu(Rule rule) { return !is_by_tensor(rule) && rule != Rule::adagrad; }

ParameterRule parse_parameter_rule(const std::string& text, std::string& problem) {
  ParameterRule rule;
  std::istringstream words(text);
  words >> rule.pattern;
  int said = 0;
  for (std::string word; words >> word; ++said) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    double number = 0;
    const char* end = word.data() + word.size();
    const char* begin = equals == std::string::npos ? end : word.data() + equals + 1;
    const auto [at, error] = std::from_chars(begin, end, number);
    const bool has_number = begin != end && error == std::errc() && at == end && number >= 0 && std::isfinite(number);
    if (word == "frozen")
      rule.frozen = true;
    else if (key == "lr" && has_number)
      rule.rate = number;
    else if (key == "weight_decay" && has_number)
      rule.weight_decay = number;
    else
      problem = fmt::format("'{}' is none of lr=FACTOR, weight_decay=NUMBER and frozen", word);
  }
  if (said == 0) problem = fmt::format("'{}' says nothing about the parameters that it names", text);
  if (rule.frozen && said > 1) problem = fmt::format("'{}' freezes parameters, which then have no rate or decay", text);
  return rule;
}

std::span<const config::Choice<LrScaling>> choices_of(LrScaling) {
  static const std::vector<config::Choice<LrScaling>> kTable = {
      {LrScaling::none, "none", {"false"}}, {LrScaling::linear, "linear", {}}, {LrScaling::sqrt, "sqrt", {}}};
  return kTable;
}

double scaled_lr(const OptimizerSettings& settings, int64_t global_batch_size) {
  const double ratio = static_cast<double>(global_batch_size) / static_cast<double>(settings.base_batch_size);
  switch (settings.lr_scaling) {
    case LrScaling::none:
      return settings.lr;
    case LrScaling::linear:
      return settings.lr * ratio;
    case LrScaling::sqrt:
      return settings.lr * std::sqrt(ratio);
  }
  return settings.lr;
}

namespace {

// A setting that the chosen rule does not read is refused, because it would have no effect.
void check(const OptimizerSettings& s, config::Problems& problems) {
  const struct {
    bool given;
    const char* key;
    std::vector<Rule> readers;
  } rows[] = {
      {s.betas.has_value(), "betas", {Rule::adamw, Rule::adam, Rule::lion, Rule::lamb, Rule::adamw8bit, Rule::muon}},
      {s.eps.has_value(),
       "eps",
       {Rule::adamw, Rule::adam, Rule::adagrad, Rule::lars, Rule::lamb, Rule::adamw8bit, Rule::muon}},
      {s.momentum.has_value(), "momentum", {Rule::sgd, Rule::lars, Rule::muon}},
      {s.nesterov.has_value(), "nesterov", {Rule::sgd, Rule::muon}},
      {s.trust_coefficient.has_value(), "trust_coefficient", {Rule::lars}},
      {s.trust_bounds.has_value(), "trust_bounds", {Rule::lamb}},
      {s.adjust_lr_fn.has_value(), "adjust_lr_fn", {Rule::muon}},
      {s.adam_lr.has_value(), "adam_lr", {Rule::muon}},
      {s.relative_step.has_value(), "relative_step", {Rule::adafactor}},
      {s.scale_parameter.has_value(), "scale_parameter", {Rule::adafactor}},
      {s.warmup_init.has_value(), "warmup_init", {Rule::adafactor}}};
  for (const auto& row : rows) {
    if (!row.given || std::find(row.readers.begin(), row.readers.end(), s.name) != row.readers.end()) continue;
    std::vector<std::string> readers;
    for (const Rule rule : row.readers) readers.emplace_back(config::name_of(rule));
    problems.add(
        fmt::format("{} has no {}", config::name_of(s.name), row.key), {},
        fmt::format("optimizer.{} belongs to {}; leave it out, or say auto", row.key, base::join(readers, ", ")));
  }
  if (s.nesterov.value_or(false) && s.name == Rule::sgd && s.momentum.value_or(0) == 0)
    problems.add("Nesterov's method needs a momentum, and there is none", {},
                 "optimizer.nesterov needs optimizer.momentum above 0, for instance 0.9");
  if (s.warmup_init.value_or(false) && s.name == Rule::adafactor && !s.relative_step.value_or(false))
    problems.add("Adafactor's own warm-up is one of its relative steps", {},
                 "optimizer.warmup_init needs optimizer.relative_step true; otherwise use train.lr_warmup_steps");
  if (s.trust_bounds && (*s.trust_bounds)[0] > (*s.trust_bounds)[1])
    problems.add("the lower bound of LAMB's ratio is above the upper one", {},
                 "optimizer.trust_bounds has the lower bound first: [0.01, 10]");
  for (const std::string& text : s.groups.value_or(std::vector<std::string>{})) {
    std::string problem;
    parse_parameter_rule(text, problem);
    if (!problem.empty())
      problems.add(problem, {},
                   "each text of optimizer.groups is a regular expression and what is different for the parameters "
                   "whose name it matches, without commas: [embed_tokens lr=0.1 weight_decay=0, layers\\.0\\. frozen]");
  }
}

}  // namespace

config::Section section(OptimizerSettings& s) {
  return {
      .name = "optimizer",
      .title = "the update rule",
      .own_leaf = "name",
      .resumed = Resumed::learned,
      .rows =
          {
              {"optimizer", &s.name, "the optimizer"},
              {"optimizer.lr", &s.lr, "highest learning rate, reached after the warm-up", {.above = 0}},
              {"optimizer.betas",
               &s.betas,
               "decay rates of the two moments; for Lion, the first is used in the update and the second for its "
               "moment; for Muon they are AdamW's",
               {.at_least = 0,
                .below = 1,
                .absent = "auto",
                .when_absent = "[0.9, 0.999]; for Lion [0.9, 0.99]",
                .example = "[0.9, 0.95]"}},
              {"optimizer.eps",
               &s.eps,
               "added to the root of the second moment (AdamW, AdamW8bit, Adam, Adagrad, LAMB, and what Muon leaves to "
               "AdamW), or to the denominator of the rate (LARS)",
               {.above = 0, .absent = "auto", .when_absent = "1e-8; for Adagrad 1e-10", .example = "1e-8"}},
              {"optimizer.weight_decay",
               &s.weight_decay,
               "decay of matrices: decoupled, times the learning rate (AdamW, AdamW8bit, Lion, LAMB, Adafactor, Muon), "
               "or added to the gradient (Adam, SGD, Adagrad, LARS)",
               {.at_least = 0,
                .absent = "auto",
                .when_absent = "0.01 for AdamW and AdamW8bit, 0.1 for Muon, else 0",
                .example = "0.1"}},
              {"optimizer.momentum",
               &s.momentum,
               "share of the last step's direction that is added to the next (SGD, LARS), or in the mean of gradients "
               "(Muon)",
               {.at_least = 0,
                .below = 1,
                .absent = "auto",
                .when_absent = "0 for SGD, which keeps no state; 0.9 for LARS, 0.95 for Muon",
                .example = "0.9"}},
              {"optimizer.nesterov",
               &s.nesterov,
               "look ahead along the momentum (SGD, Muon)",
               {.absent = "auto", .when_absent = "true for Muon, else false"}},
              {"optimizer.trust_coefficient",
               &s.trust_coefficient,
               "a matrix's rate is this times its norm over that of its gradient (LARS)",
               {.above = 0, .absent = "auto", .when_absent = "0.001", .example = "0.001"}},
              {"optimizer.trust_bounds",
               &s.trust_bounds,
               "lowest and highest ratio of a tensor's norm to that of its step (LAMB); DeepSpeed's min_coeff and "
               "max_coeff",
               {.at_least = 0, .absent = "auto", .when_absent = "[0.01, 10]", .example = "[0.01, 10]"}},
              {"optimizer.adjust_lr_fn",
               &s.adjust_lr_fn,
               "how the rate depends on a matrix's shape (Muon): match_rms_adamw gives steps of AdamW's size",
               {.absent = "auto", .when_absent = "original"}},
              {"optimizer.adam_lr",
               &s.adam_lr,
               "highest learning rate of what Muon leaves to AdamW: embedding, head, norms and biases",
               {.above = 0, .absent = "auto", .when_absent = "optimizer.lr", .example = "3e-4"}},
              {"optimizer.relative_step",
               &s.relative_step,
               "the learning rate of step t is min(0.01, 1 / sqrt(t)), and optimizer.lr and its schedule are not read "
               "(Adafactor)",
               {.absent = "auto", .when_absent = "false"}},
              {"optimizer.scale_parameter",
               &s.scale_parameter,
               "the learning rate is multiplied by the root mean square of each tensor, at least 0.001 (Adafactor)",
               {.absent = "auto", .when_absent = "false"}},
              {"optimizer.warmup_init",
               &s.warmup_init,
               "the learning rate of optimizer.relative_step rises by 1e-6 a step (Adafactor)",
               {.absent = "auto", .when_absent = "false"}},
              {"optimizer.groups",
               &s.groups,
               "what is different for some parameters: each text is a regular expression, which matches anywhere in "
               "a name, then lr=FACTOR, weight_decay=NUMBER or frozen; later texts win, and a comma ends a text",
               {.absent = "none", .when_absent = "nothing", .example = "[embed_tokens lr=0.1, layers\\.0\\. frozen]"}},
              {"optimizer.lr_scaling", &s.lr_scaling,
               "multiplies optimizer.lr, and optimizer.adam_lr with it, by train.global_batch_size / "
               "optimizer.base_batch_size (linear) or its "
               "root (sqrt)"},
              {"optimizer.base_batch_size",
               &s.base_batch_size,
               "global batch that optimizer.lr was found for; read by optimizer.lr_scaling",
               {.unit = "sequences", .at_least = 1}},
              {"optimizer.in_backward",
               &s.in_backward,
               "update a group of weights inside the backward pass, as soon as its gradient is complete, with the same "
               "bits: gradients take less memory, and offloaded moments are copied beside computation; needs "
               "train.max_norm null, and no scaled loss",
               {.resumed = Resumed::yes}},
          },
      .others =
          {
              {{"learning_rate", "lr", "max_lr"}, "the learning rate is optimizer.lr"},
              {{"weight_decay"}, "the weight decay is optimizer.weight_decay"},
              {{"beta1", "beta2", "adam_beta1", "adam_beta2"},
               "both betas are one setting: optimizer.betas [0.9,0.95]"},
              {{"optim"}, "the optimizer's name is optimizer"},
              {{"fused"}, "optimizers are always fused here; leave it out", true},
              {{"amsgrad"}, "AdamW and Adam are built without AMSGrad; leave it out", true},
              {{"muon_lr"}, "the learning rate of Muon's matrices is optimizer.lr"},
              {{"max_coeff", "min_coeff"}, "the bounds of LAMB's ratio are optimizer.trust_bounds [0.01,10]"},
              {{"ns_steps", "ns_coefficients", "ns_method"},
               "Muon's iteration has 5 steps with its usual coefficients; leave it out",
               true},
              {{"param_groups", "lr_mult", "no_decay"}, "what is different for some parameters is optimizer.groups"},
              {{"optimizer_in_bwd", "optimizer_in_backward", "apply_optimizer_in_backward"},
               "updates inside the backward pass are optimizer.in_backward true"},
              {{"dampening"}, "SGD is built without dampening; leave it out", true},
          },
      .check = [&s](config::Problems& problems) { check(s, problems); }};
}

}  // namespace trireme::optim
