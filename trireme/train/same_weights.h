// Folders of models and adapters, of which each machine may have its own. Ranks compare them before they read slices of
// their weights, and before they make the groups that follow from their shapes.
#pragma once

#include <functional>
#include <string>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/comm/communicator.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/model/config.h"

namespace trireme::train {

/// A hash of what a model's config.json means; what changes nothing does not count.
std::string fingerprint_of(const model::ModelConfig& config);
/// A hash of an adapter's configuration, without the place of its base.
std::string fingerprint_of(const adapt::AdapterConfig& config);
/// A hash of an adapter's configuration and tensors (adapt/base_fingerprint.h), without those of a copied base.
std::string fingerprint_of(const adapt::AdapterFolder& adapter);

/// Refuses ranks whose folders differ. Every rank must call. If one launcher has started all ranks on one machine,
/// nothing is read or compared.
///
/// @param name  of what is compared, for the refusal: "lora.initial_adapter"
/// @param read  makes the fingerprint; "": there is no such folder
/// Cost      that of `read`, and a gather of 8 bytes a rank
/// Errors    UsageError on every rank if they differ; CheckpointError on every rank if one cannot read its folder
void require_same_folder(comm::Communicator& world, const launch::RankEnvironment& environment, const std::string& name,
                         const std::function<std::string()>& read);

}  // namespace trireme::train
