#include "trireme/optim/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/text.h"
#include "trireme/config/problems.h"

namespace trireme::optim {

using config::Resumed;

std::span<const config::Choice<Rule>> choices_of(Rule) {
  static const std::vector<config::Choice<Rule>> kTable = {
      {Rule::adamw, "AdamW", {}}, {Rule::adam, "Adam", {}}, {Rule::sgd, "SGD", {}}, {Rule::lion, "Lion", {}}};
  return kTable;
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
  } rows[] = {{s.betas.has_value(), "betas", {Rule::adamw, Rule::adam, Rule::lion}},
              {s.eps.has_value(), "eps", {Rule::adamw, Rule::adam}},
              {s.momentum.has_value(), "momentum", {Rule::sgd}},
              {s.nesterov.has_value(), "nesterov", {Rule::sgd}}};
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
}

}  // namespace

config::Section section(OptimizerSettings& s) {
  return {.name = "optimizer",
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
                   "moment",
                   {.at_least = 0,
                    .below = 1,
                    .absent = "auto",
                    .when_absent = "[0.9, 0.999]; for Lion [0.9, 0.99]",
                    .example = "[0.9, 0.95]"}},
                  {"optimizer.eps",
                   &s.eps,
                   "added to the root of the second moment (AdamW, Adam)",
                   {.above = 0, .absent = "auto", .when_absent = "1e-8", .example = "1e-8"}},
                  {"optimizer.weight_decay",
                   &s.weight_decay,
                   "decay of matrices: decoupled, times the learning rate (AdamW, Lion), or added to the gradient "
                   "(Adam, SGD)",
                   {.at_least = 0, .absent = "auto", .when_absent = "0.01 for AdamW, else 0", .example = "0.1"}},
                  {"optimizer.momentum",
                   &s.momentum,
                   "share of the last step's direction that is added to the next (SGD)",
                   {.at_least = 0,
                    .below = 1,
                    .absent = "auto",
                    .when_absent = "0, which keeps no state",
                    .example = "0.9"}},
                  {"optimizer.nesterov",
                   &s.nesterov,
                   "look ahead along the momentum (SGD)",
                   {.absent = "auto", .when_absent = "false"}},
                  {"optimizer.lr_scaling", &s.lr_scaling,
                   "multiplies optimizer.lr by train.global_batch_size / optimizer.base_batch_size (linear) or its "
                   "root (sqrt)"},
                  {"optimizer.base_batch_size",
                   &s.base_batch_size,
                   "global batch that optimizer.lr was found for; read by optimizer.lr_scaling",
                   {.unit = "sequences", .at_least = 1}},
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
                  {{"dampening"}, "SGD is built without dampening; leave it out", true},
              },
          .check = [&s](config::Problems& problems) { check(s, problems); }};
}

}  // namespace trireme::optim
