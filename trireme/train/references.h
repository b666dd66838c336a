// What replies are compared with: their log-probabilities under the reference, which are computed once, before
// training, on the run's own engine. So a reference takes no memory while the model trains. They are kept in
// out_dir/tokens, in a file whose name has the fingerprints of the reference and of the data.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/data/preference_data.h"
#include "trireme/train/session.h"
#include "trireme/train/task.h"

namespace trireme::train {

/// Of each pair of a PreferenceDataset, in its order: sums over the replies' tokens.
struct ReferenceScores {
  std::vector<double> chosen, rejected;
};

struct References {
  ReferenceScores train, val;
};

/// The folder of the reference: dpo.reference, or the model before training.
std::filesystem::path reference_folder(const Settings& settings);

/// Checks the folder that dpo.reference or grpo.reference names, before ranks start and in dry runs: a model of the
/// same shape, or where an adapter is trained another one of the same configuration, for the same base. Errors
/// UsageError: another adapter, another shape than the model's, no such folder
void check_reference(const Settings& settings);

/// Loads a reference. That is the model in the folder that a setting names, beside which adapters add nothing. If the
/// folder holds an adapter, it is the base with that one. With nothing named, it is the model before training, without
/// adapters. The engine then holds its weights until others are loaded. Every rank must call.
/// Errors    CheckpointError, the same on every rank; UsageError, too, if ranks have other references
void load_reference(Session& session, const std::optional<std::string>& named);

/// Keeps the fingerprint of the reference in the run's state, and refuses another one for a run that goes on, unless
/// the setting that names it has changed. Every rank must call. Errors    UsageError, the same on every rank
void keep_reference(Session& session, RunState& state);

/// Reads or computes them. The engine then holds the reference's weights until others are loaded.
/// Every rank must call. Calls `stops` while it computes; after a stop the numbers mean nothing.
///
/// Cost      a forward pass over all pairs, unless they are cached
/// Errors    as load_reference(); Error if the file cannot be written
References reference_scores(Session& session, const data::PreferenceData& data, const StopCheck& stops);

}  // namespace trireme::train
