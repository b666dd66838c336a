// Ranks that run a trained model without training it: mesh.tp divides every matrix, mesh.pp the blocks. Further ranks
// hold further copies of the model, which share the work of an evaluation.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "trireme/adapt/open_model.h"
#include "trireme/launch/identity/environment.h"
#include "trireme/model/classifier.h"
#include "trireme/model/generator.h"
#include "trireme/settings/settings.h"
#include "trireme/text/tokenizer.h"
#include "trireme/train/ranks.h"

namespace trireme::train {

struct Inference {
  RankMeeting meeting;
  comm::CommunicatorPtr world, tp, stages;  ///< `stages`: the ranks of one pipeline
  std::unique_ptr<model::Generator> generator;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::vector<int64_t> stop_ids;  ///< tokens that end a text (eos_token_id of the folder's files)
  std::filesystem::path folder;  ///< of the model's weights: the checkpoint, or an adapter's base
  std::filesystem::path adapter;  ///< merged into them; empty: none
  int replica = 0, num_replicas = 1;
  bool counts = true;  ///< true on the rank of each copy that has the logits and counts results
  bool is_first_rank = true;
};

/// The model that the settings of a command name.
template <typename CommandSettings>
adapt::ModelPlace place_of(const CommandSettings& s) {
  return {.model = s.checkpoint, .adapter = s.adapter.value_or(""), .base = s.base.value_or("")};
}

/// Tokens that end a text: the tokenizer's, and eos_token_id of the files in `folder`, if it is one.
std::vector<int64_t> stop_ids_of(const std::filesystem::path& folder, const text::Tokenizer& tokenizer);

/// Checks the model's folders, its config and tokenizer, and the mesh, before ranks start. `one_copy`: refuses further
/// copies.
/// Errors    UsageError, CheckpointError
void check_inference(const Settings& settings, const adapt::ModelPlace& place, bool one_copy);

/// Loads a model (a checkpoint, a run's out_dir, an adapter); each rank loads its own slices. The cache holds
/// `capacity` tokens. In a run's out_dir, if the newest checkpoint turns out to be damaged, the next older one is
/// loaded; rank 0 warns about the damaged ones.
///
/// Numerics  --precision 32-true by default; bf16-mixed keeps weights and cache in bfloat16
/// Errors    UsageError, CheckpointError, CommError
Inference open_inference(const Settings& settings, const launch::RankEnvironment& environment,
                         const adapt::ModelPlace& place, int64_t capacity = 0);

/// A generator alone on this rank, in the given precision; with matrices of blocks in fewer bits.
std::unique_ptr<model::Generator> open_generator(const checkpoint::Checkpoint& checkpoint,
                                                 const model::Precision& precision,
                                                 const model::GeneratorRanks& ranks = {}, int64_t capacity = 0,
                                                 base::BlockFormat quantize = base::BlockFormat::none);
/// A model with labels, likewise.
/// Errors    UsageError, CheckpointError
std::unique_ptr<model::Classifier> open_classifier(const checkpoint::Checkpoint& checkpoint,
                                                   const model::Precision& precision);
/// Precision without training: 32-true unless the settings say otherwise.
model::Precision inference_precision(const Settings& settings);

}  // namespace trireme::train
