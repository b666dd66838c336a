#include "trireme/optim/parameter_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/text/regex.h"

namespace trireme::optim {
namespace {

std::set<std::string> frozen_in(const model::Model& model) {
  std::set<std::string> names;
  for (const model::ParameterGroup& group : model.groups)
    for (const model::ParameterSpec& p : group.parameters)
      if (!group.trained) names.insert(p.name);
  return names;
}

std::set<std::string> matching(const model::Model& model, const ParameterRule& rule) {
  const text::Regex regex(rule.pattern);
  std::set<std::string> names;
  for (const model::ParameterGroup& group : model.groups)
    for (const model::ParameterSpec& p : group.parameters)
      regex.for_each_match(p.name, [&](text::Regex::Match) { names.insert(p.name); });
  if (!names.empty()) return names;
  const model::ParameterGroup& group = model.groups[model.groups.size() / 2];
  throw UsageError(
      fmt::format("optimizer.groups: '{}' matches no parameter of this model; their names are like {}; correct the "
                  "expression, or leave it out",
                  rule.pattern, group.parameters.front().name));
}

}  // namespace

std::vector<ParameterRule> parameter_rules(const OptimizerSettings& settings) {
  std::vector<ParameterRule> rules;
  for (const std::string& text : settings.groups.value_or(std::vector<std::string>{})) {
    std::string problem;
    rules.push_back(parse_parameter_rule(text, problem));
    if (!problem.empty()) throw UsageError("optimizer.groups: " + problem);
  }
  return rules;
}

void apply_parameter_rules(model::Model& model, model::Grouping grouping, std::span<const ParameterRule> rules) {
  if (rules.empty()) return;
  std::set<std::string> frozen = frozen_in(model);
  std::vector<std::pair<const ParameterRule*, std::set<std::string>>> matched;
  for (const ParameterRule& rule : rules) {
    matched.emplace_back(&rule, matching(model, rule));
    const std::set<std::string>& names = matched.back().second;
    if (std::ranges::includes(frozen, names))
      throw UsageError(fmt::format(
          "optimizer.groups: '{}' matches only parameters that are frozen already; leave it out", rule.pattern));
    if (rule.frozen) frozen.insert(names.begin(), names.end());
  }
  grouping.frozen.assign(frozen.begin(), frozen.end());
  model::group_parameters(model, grouping);
  if (std::ranges::none_of(model.groups, &model::ParameterGroup::trained))
    throw UsageError("optimizer.groups freezes every parameter, and nothing is left to train; leave some out");
  for (model::ParameterGroup& group : model.groups)
    for (model::ParameterSpec& p : group.parameters) {
      double rate = 1;
      for (const auto& [rule, names] : matched) {
        if (!names.contains(p.name)) continue;
        if (rule->rate) rate = *rule->rate;
        if (rule->weight_decay) p.weight_decay = rule->weight_decay, p.decay = *rule->weight_decay > 0;
      }
      p.rate *= rate;  // beside that of LoRA+
    }
}

}  // namespace trireme::optim
