// Turns settings of adapters into PEFT's words, and into a model's adapters.
#pragma once

#include <optional>

#include "trireme/adapt/adapter_config.h"
#include "trireme/adapt/settings.h"
#include "trireme/model/config.h"

namespace trireme::adapt {

/// The adapters of a run: as lora.initial_adapter's folder says if there is one, else as the settings say. Nothing
/// without adapters.
/// Errors    UsageError: a pattern without a number above 0; CheckpointError for the folder
std::optional<AdapterConfig> adapter_config(const LoraSettings& settings, const model::ModelConfig& model);

/// The same, resolved on the model. No adapters: empty. Errors    also those of resolve()
model::Adapters adapters_of(const LoraSettings& settings, const model::ModelConfig& model);

}  // namespace trireme::adapt
