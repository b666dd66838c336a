// Gathers the parameters of a model's units into flat groups, as Grouping asks.
#pragma once

#include "trireme/model/model.h"

namespace trireme::model {

/// Fills `groups` and `places` of a model whose units are there.
/// Errors    UsageError naming an unknown unit of own_group, or what cannot be asked for together
void group_parameters(Model& model, const Grouping& grouping);

}  // namespace trireme::model
