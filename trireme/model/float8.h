// Which models can train with products of 8 bits (Precision::float8).
#pragma once

#include "trireme/model/adapters.h"
#include "trireme/model/config.h"
#include "trireme/model/objective.h"
#include "trireme/model/unit.h"

namespace trireme::model {

/// Errors    UsageError: one sentence, with the way out
void check_float8(const ModelConfig& config, const Parallel& parallel, const Precision& precision,
                  const Adapters& adapters, const Objective& objective);

}  // namespace trireme::model
