// From settings to ModelConfig, Precision and Grouping.
#pragma once

#include <string>

#include "trireme/model/config.h"
#include "trireme/model/model.h"
#include "trireme/model/settings.h"

namespace trireme::model {

/// The shape from the catalogue or from a folder's config.json, changed by the keys that the settings give.
/// Errors    UsageError
ModelConfig config_of(const ModelSettings& settings);

/// Keeps in few bits what the settings want so. `folder` is for messages.
/// Errors    UsageError if its matrices lie in another format already
void quantize(ModelConfig& config, const ModelSettings& settings, const std::string& folder);

/// What is said of an adapter's folder in the place of a model's. `way_out` says how it is trained on.
std::string an_adapters_folder(const std::string& name, const std::string& way_out);

/// The dtypes of settings, with `format` for theirs; `automatic` must have been resolved (trireme/settings/derived.h).
Precision precision_of(const PrecisionSettings& settings, NumberFormat format);

/// How parameters are joined into flat groups.
Grouping grouping_of(const WrapSettings& settings);

}  // namespace trireme::model
