// From settings to ModelConfig, Precision and Grouping.
#pragma once

#include "trireme/model/config.h"
#include "trireme/model/model.h"
#include "trireme/model/settings.h"

namespace trireme::model {

/// The shape from the catalogue or from a folder's config.json, changed by the keys that the settings give.
/// Errors    UsageError
ModelConfig config_of(const ModelSettings& settings);

/// The dtypes of a format; `automatic` must have been resolved (trireme/settings/precision.h).
Precision precision_of(NumberFormat format);

/// How parameters are joined into flat groups.
Grouping grouping_of(const WrapSettings& settings);

}  // namespace trireme::model
