// Ranks that run a trained model without training it: mesh.tp divides every matrix, mesh.pp the blocks. Further ranks
// compute other texts, with a copy of the model or (strategy) a shard of one.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "trireme/adapt/open_model.h"
#include "trireme/generate/alone.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/model/classifier.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/settings.h"
#include "trireme/text/tokenizer.h"
#include "trireme/train/ranks.h"

namespace trireme::train {

struct Inference {
  RankMeeting meeting;
  comm::CommunicatorPtr world;
  std::unique_ptr<text::Tokenizer> tokenizer;  ///< null without text (HasText)
  model::ModelConfig config;
  std::vector<int64_t> stop_ids;  ///< tokens that end a text (eos_token_id of the folder's files)
  std::filesystem::path folder;  ///< of the model's weights: the checkpoint, or an adapter's base
  std::filesystem::path adapter;  ///< merged into them, or beside them (`adapters`); empty: none
  model::Adapters adapters;       ///< those that are not merged
  int replica = 0, num_replicas = 1;  ///< among the ranks that compute different texts
  bool counts = true;  ///< true on one rank of each replica, which counts results
  bool is_first_rank = true;
  // The model, when it has been loaded.
  std::unique_ptr<model::Model> model;
  std::unique_ptr<engine::Engine> engine;
  std::unique_ptr<generate::Generator> generator;
};

/// The model that the settings of a command name.
template <typename CommandSettings>
adapt::ModelPlace place_of(const CommandSettings& s) {
  return {.model = s.checkpoint, .adapter = s.adapter.value_or(""), .base = s.base.value_or("")};
}

/// A model as texts are written with it. An adapter is merged, or stays beside a base in few bits.
struct PlacedModel {
  checkpoint::Checkpoint model;  ///< the files of its weights
  std::optional<adapt::Beside> beside;  ///< its base is `model`
  model::ModelConfig config;

  model::Adapters adapters() const { return beside ? beside->fitted.adapters : model::Adapters(); }
};
/// Errors    UsageError, CheckpointError
PlacedModel open_place(const Settings& settings, adapt::ModelPlace place);

/// Tokens that end a text: the tokenizer's, and eos_token_id of the files in `folder`, if it is one.
std::vector<int64_t> stop_ids_of(const std::filesystem::path& folder, const text::Tokenizer& tokenizer);

/// The ranks' places without training. Errors    UsageError: cp, or ranks that cannot be divided
MeshShape inference_mesh(const Settings& settings, int64_t world_size);

/// What a rank allocates for texts. Nothing is allocated here.
struct InferencePlan {
  std::unique_ptr<model::Model> model;  ///< the plan refers to it
  plan::StepPlan plan;
};
/// Errors    UsageError: settings that cannot work
InferencePlan plan_inference(const Settings& settings, const model::ModelConfig& config, int64_t world_size, int rank,
                             const generate::Room& room, const model::Adapters& adapters = {});

/// Whether a command reads or writes text. Where it has ids alone, the model needs no tokenizer, and one beside it may
/// be damaged or another model's.
using HasText = std::function<bool()>;

/// Checks the model's folders, its config and tokenizer, and the mesh, before ranks start. `one_copy`: refuses further
/// copies. Returns what it has read: config, tokenizer (null without text) and folder.
/// Errors    UsageError, CheckpointError
Inference check_inference(const Settings& settings, const adapt::ModelPlace& place, bool one_copy,
                          const HasText& has_text = {});

/// The room for texts that a command needs. Tokenizer, configuration and place among the ranks are known.
using RoomOf = std::function<generate::Room(const Inference&)>;

/// Loads a model (a checkpoint, a run's out_dir, an adapter); each rank loads its own slices. In a run's out_dir, if
/// the newest checkpoint turns out to be damaged, the next older one is loaded; of each that is passed over there is
/// one warning.
///
/// Numerics  --precision 32-true by default, also for a folder in bfloat16, of which rank 0 tells; bf16-mixed keeps
///           weights and cache in bfloat16
/// Errors    UsageError, also on every rank if they have other models; CheckpointError, CommError
Inference open_inference(const Settings& settings, const launch::RankEnvironment& environment,
                         const adapt::ModelPlace& place, const RoomOf& room, const HasText& has_text = {});

/// Replaces a rank's numbers by their sum over all ranks. Each has worked for itself before, on texts of its own, and
/// waits for the others as long as they need.
void sum_over_ranks(const Inference& in, const at::Tensor& numbers);

/// A model alone on this rank, in the given precision; for texts of `tokens`, one at a time.
std::unique_ptr<generate::Alone> open_alone(const checkpoint::Checkpoint& checkpoint, const model::Precision& precision,
                                            int64_t tokens);
/// A model with labels, likewise.
/// Errors    UsageError, CheckpointError
std::unique_ptr<model::Classifier> open_classifier(const checkpoint::Checkpoint& checkpoint,
                                                   const model::Precision& precision);
/// Precision without training: 32-true unless the settings say otherwise.
model::Precision inference_precision(const Settings& settings);

}  // namespace trireme::train
