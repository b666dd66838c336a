// Between the engine's flat shards and a checkpoint's named tensors.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/save.h"
#include "trireme/config/settings.h"
#include "trireme/data/training_data.h"
#include "trireme/engine/engine.h"
#include "trireme/launch/environment.h"
#include "trireme/train/model_source.h"

namespace trireme::train {

/// In out_dir: which run it is.
inline constexpr const char* kRunFile = "run.json";

/// What the run's command names and needs again when it is given again; some are names, not paths.
std::vector<std::filesystem::path> started_with(const config::Settings& settings);

/// The checkpoint's word for a tensor's dtype.
checkpoint::Dtype dtype_of(at::ScalarType type);

/// Where a run stands: what is saved beside the tensors, and all that is needed to go on.
struct RunState {
  int64_t step = 0;
  int64_t samples = 0;              ///< consumed since the start of training
  int64_t tokens = 0;
  std::string run;                  ///< who saved it (begin_run)
  data::DataIdentity data;          ///< that `samples` counts in
  std::string settings_yaml;
  ModelSource source;               ///< of the folder that was loaded; not in the state's file
};

std::string to_json(const RunState& state);
/// Errors    CheckpointError naming the key that is missing or wrong
RunState parse_run_state(const std::string& json, const std::filesystem::path& path);

/// What the run's command names and needs again when it is given again; some are names, not paths. No checkpoint that
/// is one of them is deleted.
std::vector<std::filesystem::path> started_with(const config::Settings& settings);

/// What this rank saves of `groups` (Engine::state or copy_state), whose memory the request points into.
checkpoint::SaveRequest save_request(std::span<const engine::GroupState> groups, const model::Model& model,
                                     const config::Settings& settings, const RunState& state);

/// Saves model, optimizer and state; every rank must call.
checkpoint::SaveResult save_run(engine::Engine& engine, const model::Model& model, const config::Settings& settings,
                                const RunState& state, comm::Communicator& world);

enum class LoadWhat { run, weights };

/// Fills the engine's masters and optimizer state from any checkpoint of this model, saved by any number of ranks.
/// A folder without masters (a Hugging Face model) gives weights and zero optimizer state. `weights` takes nothing else
/// from any folder: the state that is returned is that of a new run. `optimizer` is this run's by name: Adam and AdamW
/// keep the same tensors, so the checkpoint's settings say whose they are; empty, or where they do not say: not
/// checked. Errors    CheckpointError, the same on every rank: also where another optimizer saved it
RunState load_run(engine::Engine& engine, const model::Model& model, const std::filesystem::path& path,
                  comm::Communicator& world, LoadWhat what = LoadWhat::run, const std::string& optimizer = "");

/// The folder whose weights a new run starts from: the model's, where it is a folder that has some. Empty: none.
std::filesystem::path starting_weights(const config::Settings& settings);

/// The checkpoint that `resume` means, or an empty path: start afresh. Newer ones that are not good are added to
/// `passed_over`.
/// Errors    UsageError when one is asked for and there is none, when none is good, and when a newer one cannot be read
std::filesystem::path find_resume(const config::Settings& settings,
                                  std::vector<checkpoint::PassedOver>* passed_over = nullptr);

/// Options for a run that goes on from `resume` (empty: it begins): where settings leave the held-out part to choose, a
/// run that began with the last part keeps it. Errors    CheckpointError
void keep_split(data::TrainingDataOptions& options, const std::filesystem::path& resume);
/// The same, as rank 0 sees it. Every rank must call. Errors    CheckpointError, the same on every rank
void keep_split(data::TrainingDataOptions& options, const std::filesystem::path& resume, comm::Communicator& world);

/// What find_resume finds on rank 0, on every rank: where a folder is saved to or thinned out meanwhile, or its listing
/// is cached, ranks that look for themselves could go on from different steps. Every rank must call.
/// Errors    CheckpointError, the same on every rank
std::filesystem::path agree_on_resume(const config::Settings& settings, comm::Communicator& world,
                                      std::vector<checkpoint::PassedOver>& passed_over);

/// load_run of the checkpoint that was agreed on. Where it was found, not named, and its tensors turn out to be
/// damaged, the next older good one takes its place in `folder`. Every rank must call.
RunState resume_run(engine::Engine& engine, const model::Model& model, const config::Settings& settings,
                    comm::Communicator& world, std::filesystem::path& folder,
                    std::vector<checkpoint::PassedOver>& passed_over);

/// The name of this run, the same on every rank, kept in out_dir/run.json: the launcher's, else a new one, or where
/// ranks were restarted the one that the attempt before them took. Every rank must call.
std::string begin_run(const std::filesystem::path& out_dir, const launch::RankEnvironment& environment,
                      comm::Communicator& world);

/// Where the launcher names no run: removes the name that an earlier one left in out_dir, so that a restart of this
/// one, if it ends before begin_run, does not take it for its own. On rank 0 of the first attempt, before all else.
void forget_earlier_run(const std::filesystem::path& out_dir, const launch::RankEnvironment& environment);

/// What a restart goes on from: the newest checkpoint in out_dir that its run has saved. Those of earlier runs, and of
/// a branch that was left, are not its own.
std::optional<std::filesystem::path> find_saved_by_this_run(const std::filesystem::path& out_dir,
                                                            const launch::RankEnvironment& environment);

}  // namespace trireme::train
