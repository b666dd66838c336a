// Ranks that run a trained model without training it: mesh.tp divides every matrix, mesh.pp the blocks, and what is
// left of the ranks are copies that share the work of an evaluation.
#pragma once

#include <filesystem>
#include <memory>

#include "trireme/config/settings.h"
#include "trireme/data/tokenizer.h"
#include "trireme/launch/environment.h"
#include "trireme/model/generator.h"
#include "trireme/train/ranks.h"

namespace trireme::train {

struct Inference {
  RankMeeting meeting;
  comm::CommunicatorPtr world, tp, stages;
  std::unique_ptr<model::Generator> generator;
  std::unique_ptr<data::Tokenizer> tokenizer;
  std::vector<int64_t> stop_ids;   ///< tokens that end a text (eos_token_id of the folder's files)
  std::filesystem::path folder;    ///< the checkpoint
  int replica = 0, num_replicas = 1;
  bool counts = true;              ///< one rank of each copy, which has the logits, speaks for it
  bool is_first_rank = true;
};

/// `folder`, or the newest checkpoint in it. Errors: UsageError when there is no such folder
std::filesystem::path checkpoint_of(const std::filesystem::path& folder);

/// Refuses what can be known before a process starts: the folder, its config and tokenizer, a mesh that does not fit.
/// Errors    UsageError, CheckpointError
void check_inference(const config::Settings& settings, const std::filesystem::path& folder, bool one_copy);

/// Loads the model at `folder` (a checkpoint, or a run's out_dir), each rank its own slices; `capacity` tokens of
/// cache.
///
/// Numerics  --precision 32-true unless another one is asked for; bf16-mixed keeps weights and cache in bfloat16
/// Errors    UsageError, CheckpointError, CommError
Inference open_inference(const config::Settings& settings, const launch::RankEnvironment& environment,
                         const std::filesystem::path& folder, int64_t capacity = 0);

/// A generator alone on this rank, in the given precision.
std::unique_ptr<model::Generator> open_generator(const std::filesystem::path& folder, const model::Precision& precision,
                                                 const model::GeneratorRanks& ranks = {}, int64_t capacity = 0);

}  // namespace trireme::train
