// Parameters with a rate or a decay of their own, and frozen ones, by regular expressions of their names.
#pragma once

#include <span>
#include <vector>

#include "trireme/model/model.h"
#include "trireme/optim/settings.h"

namespace trireme::optim {

/// The rules of optimizer.groups.
/// Errors    UsageError for a text that is no rule
std::vector<ParameterRule> parameter_rules(const OptimizerSettings& settings);

/// Gives the parameters of `model`, which was grouped by `grouping`, what the rules say. A name has a match if the
/// expression matches anywhere in it; of several rules the last one counts that says something. Frozen parameters go
/// into groups of their own. Errors    UsageError if an expression matches no name, or only parameters that are frozen
/// anyway; if nothing is left
///           to train; and as text::Regex, group_parameters
void apply_parameter_rules(model::Model& model, model::Grouping grouping, std::span<const ParameterRule> rules);

}  // namespace trireme::optim
